"""What shipped connectors declare agrees with what they check when they run."""

import time
from enum import StrEnum
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from syncline import Connector, Permanent
from syncline.connectors.demo import Account
from syncline.connectors.feed.connector import _parse_config as parse_feed
from syncline.connectors.foreign.airbyte import AirbyteManifest
from syncline.connectors.git.connector import _parse_config as parse_git
from syncline.errors import Invalid
from syncline.model import Connection, ConnectionStatus
from syncline.sdk.declarations import (
    AUTH_FIELDS,
    config_problems,
    credential_problem,
    declaration_of,
    shared_declaration,
    shared_declarations,
    unknown_provider,
)
from syncline.sdk.json_schema import schema_problems
from syncline.sdk.registry import connectors_by_provider

SHIPPED = connectors_by_provider([AirbyteManifest("source-declarative-manifest")])
URLS = ["https://h/x", "HTTP://h", "ftp://h", "", "a\nb", "x" * 2001, 7, None, True]
SIZES = [1, 5000, 0, 5001, 1.0, "1", True, None]


def parse_demo(config: dict[str, Any]) -> None:
    Account.parse(Connection(uuid4(), "t", "demo", "e", ConnectionStatus.ACTIVE, config, {}))


def configs(**values: list[Any]) -> list[dict[str, Any]]:
    """Return configs that are right but for one value."""
    right: dict[str, Any] = {name: some[0] for name, some in values.items()}
    changed = [{**right, name: one} for name, some in values.items() for one in some]
    left_out = [{n: v for n, v in right.items() if n != name} for name in right]
    return [*changed, *left_out, {}, {**right, "unknown": 1}]


@pytest.mark.parametrize("provider", sorted(SHIPPED))
def test_every_shipped_connector_declares(provider: str) -> None:
    declared = declaration_of(provider, SHIPPED[provider])

    assert declared.title != provider
    assert declared.auth
    assert set(declared.auth) <= AUTH_FIELDS.keys()
    assert declared.config_schema is not None
    assert declared.config_schema["type"] == "object"


@pytest.mark.parametrize(
    ("provider", "parse", "tried"),
    [
        ("feed", parse_feed, configs(url=URLS, page_size=SIZES)),
        (
            "git",
            parse_git,
            configs(
                url=URLS,
                branch=["main", "refs/heads/a", "-x", "a..b", "a b", "a\n", "", "b" * 256, 3, None],
                page_size=SIZES,
            ),
        ),
        (
            "demo",
            parse_demo,
            configs(personality=["busy", "odd", 1, None], rate=[1, 0.01, 600, 0, 601, "1", True]),
        ),
    ],
)
def test_declared_schemas_agree_with_the_connectors(
    provider: str, parse: Any, tried: list[dict[str, Any]]
) -> None:
    for config in tried:
        refused = None
        try:
            parse(config)
        except Permanent as error:
            refused = str(error)

        problems = [problem.field for problem in config_problems(SHIPPED[provider], config)]

        assert bool(problems) == (refused is not None), (config, refused, problems)
        assert refused is None or refused.split(":")[0] in problems


def test_a_model_names_each_wrong_field() -> None:
    config = {"repositories": ["a/b", "no slash"], "page_size": 0}

    found = [problem.field for problem in config_problems(SHIPPED["github"], config)]

    assert found == ["config.repositories[1]", "config.page_size"]


def test_a_connector_may_declare_any_model() -> None:
    class Desk(BaseModel):
        name: str

    class Tickets(Connector):
        provider = "tickets"
        config_schema = Desk

    connector = Tickets()
    assert [one.field for one in config_problems(connector, {})] == ["config.name"]
    assert declaration_of("tickets", connector).title == "tickets"


def test_a_connector_without_a_schema_accepts_everything() -> None:
    assert not list(config_problems(Connector(), {"any": "thing"}))
    assert credential_problem(Connector(), {"any": "thing"}) is None


def test_schemas_for_other_languages_pass() -> None:
    schema = {"properties": {"a": {"pattern": r"\p{L}+", "minLength": "x", "maximum": None}}}

    assert not list(schema_problems({"a": "b"}, schema, "config"))


@pytest.mark.parametrize(
    ("provider", "credentials", "is_refused"),
    [
        ("github", {"token": "s3cret"}, False),
        ("github", {"username": "a", "password": "s3cret"}, False),
        ("github", {"tokn": "s3cret"}, True),
        ("git", {"private_key": "s3cret"}, False),
        ("imap", {"token": "s3cret"}, True),
        ("demo", {"anything": "s3cret"}, False),
    ],
)
def test_credentials_are_of_a_declared_kind(
    provider: str, credentials: dict[str, Any], is_refused: bool
) -> None:
    problem = credential_problem(SHIPPED[provider], credentials)

    assert (problem is not None) == is_refused
    assert "s3cret" not in str(problem)


def test_an_unknown_provider_is_refused_with_the_nearest_name() -> None:
    refused = unknown_provider("gitub", ["demo", "git", "github"])

    assert isinstance(refused, Invalid)
    assert refused.field == "provider_slug"
    assert "did you mean 'github'?" in refused.reason


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(a+)+$", "a" * 5_000 + "!"),  # a backtracking engine would not come back
        (r"^(?:\w+\s?)*$", "a " * 5_000 + "!"),
        (r"((a{0,100}){0,100}){0,10}$", "a" * 9_999 + "!"),  # a program of 100,000 steps
    ],
)
def test_a_pattern_is_matched_in_bounded_time(pattern: str, text: str) -> None:
    began = time.process_time()

    problems = list(schema_problems(text, {"pattern": pattern}, "config.a"))

    assert time.process_time() - began < 1
    assert [field for field, _ in problems] == ["config.a"]


def test_a_pattern_is_found_anywhere_in_a_text() -> None:
    schema = {"pattern": "b[0-9]{2}"}

    assert list(schema_problems("ab42c", schema, "a")) == []
    assert list(schema_problems("ab4c", schema, "a")) == [
        ("a", "does not match the pattern b[0-9]{2}")
    ]


def test_a_model_is_declared_without_references() -> None:
    class Color(StrEnum):
        RED = "red"

    class Part(BaseModel):
        color: Color
        size: int | None = None
        inner: "list[Part]" = []

    class Parts(Connector):
        provider = "parts"
        config_schema = Part

    schema = declaration_of("parts", Parts()).config_schema

    assert schema is not None
    assert "$ref" not in str(schema["properties"]["color"])
    good: dict[str, Any] = {"color": "red", "size": None, "inner": [{"color": "red"}]}
    assert not list(schema_problems(good, schema, "config"))
    bad = {"color": "blue", "size": "1", "inner": [{"color": 1}]}
    assert [field for field, _ in schema_problems(bad, schema, "config")] == [
        "config.color",
        "config.size",
        "config.inner[0].color",
    ]


def test_what_another_process_declares_may_be_anything() -> None:
    told: list[Any] = [None, [], {"title": 1, "auth": "x", "config_schema": []}]
    for odd in told:
        found = shared_declaration("tickets", odd)
        assert (found.title, found.auth, found.config_schema) == ("tickets", None, None)


def test_a_schema_that_is_too_long_stays_at_home() -> None:
    class Long(Connector):
        title = "Long"
        config_schema = {"description": "x" * 70_000}  # noqa: RUF012

    assert shared_declarations({"long": Long()}) == {
        "long": {"title": "Long", "auth": None, "config_schema": None}
    }
