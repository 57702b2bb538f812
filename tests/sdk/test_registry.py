"""Which connector serves which provider."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syncline import Connector, Engine, Settings
from syncline.sdk.connector import Connector as Base
from syncline.sdk.registry import (
    GROUP,
    announced_connectors,
    connectors_by_provider,
    connectors_in,
    provider_of,
)
from syncline.testing import ScriptedConnector

Announce = Callable[..., None]
MODULE = "connectors_of_a_test"


class Tickets(Connector):
    provider = "tickets"


class Nameless(Connector):
    pass


class Demanding(Connector):
    provider = "demanding"

    def __init__(self, token: str) -> None:
        self.token = token


class NotAConnector:
    provider = "stones"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module that a test fills."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package that has these entry points and nothing else."""

    def install(entry_points: str) -> None:
        package = tmp_path / "announcing-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: announcing\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_points}")
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.fixture
def announce(install: Callable[[str], None], module: ModuleType) -> Announce:
    """Let an installed package announce these names of the module."""

    def announce(**values: Any) -> None:
        vars(module).update(values)
        install("\n".join(f"{name} = {MODULE}:{name}" for name in values))

    return announce


def test_those_handed_over_serve_their_providers() -> None:
    tickets, mail = Tickets(), ScriptedConnector("mail")

    served = connectors_by_provider([tickets, mail], discover=False)

    assert served == {"tickets": tickets, "mail": mail}


def test_two_for_one_provider_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^connectors has two for the provider 'tickets'$"):
        connectors_by_provider([Tickets(), ScriptedConnector("tickets")])


def test_announced_ones_are_found(announce: Announce) -> None:
    announce(Tickets=Tickets)

    assert isinstance(connectors_by_provider([])["tickets"], Tickets)


def test_without_discovery_announced_ones_stay_out(announce: Announce) -> None:
    announce(Tickets=Tickets)

    assert Engine(discover=False).providers == {}


def test_one_handed_over_comes_before_an_announced_one(announce: Announce) -> None:
    announce(Tickets=Tickets)
    own = ScriptedConnector("tickets")

    assert connectors_by_provider([own])["tickets"] is own


def test_of_two_announced_ones_the_first_by_name_serves(announce: Announce) -> None:
    class Other(Connector):
        provider = "tickets"

    announce(b=Tickets, a=Other)

    assert type(connectors_by_provider([])["tickets"]) is Other


def raise_on_call() -> Connector:
    raise RuntimeError("no licence")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        pytest.param(raise_on_call, "no licence", id="raises"),
        pytest.param(Demanding, "token", id="needs an argument"),
        pytest.param(Nameless, "Nameless.provider must be a non-empty str", id="serves nobody"),
        pytest.param(NotAConnector, "NotAConnector has no sync()", id="is no connector"),
        pytest.param("text", "not callable", id="is no class"),
    ],
)
def test_a_broken_announcement_is_told_and_left_out(
    announce: Announce, caplog: pytest.LogCaptureFixture, broken: Any, reason: str
) -> None:
    announce(broken=broken, sound=Tickets)

    found = connectors_by_provider([])

    assert "tickets" in found
    assert not {"broken", "demanding", "stones"} & set(found)
    [record] = [one for one in caplog.records if "broken" in one.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.name == "syncline.connectors"
    assert record.getMessage().startswith("connector broken cannot be loaded: ")
    assert reason in record.getMessage()


def test_an_announced_module_that_is_missing_is_told_and_left_out(
    install: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    before = {provider_of(connector) for connector in announced_connectors()}
    install("gone = no_such_package:Tickets")

    assert {provider_of(connector) for connector in announced_connectors()} == before
    assert "connector gone cannot be loaded: No module named 'no_such_package'" in caplog.text


def test_the_built_in_ones_are_announced() -> None:
    assert {"git", "demo"} <= {provider_of(connector) for connector in announced_connectors()}


@pytest.mark.parametrize(
    ("connector", "message"),
    [
        (Nameless(), "Nameless.provider must be a non-empty str"),
        (ScriptedConnector(""), "ScriptedConnector.provider must be a non-empty str"),
        (ScriptedConnector(7), "ScriptedConnector.provider must be a non-empty str"),  # type: ignore[arg-type]
        (object(), "object.provider must be a non-empty str"),
        (NotAConnector(), "NotAConnector has no sync()"),
        (Tickets, "Tickets is a class; pass an instance of it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_connector_is_refused(connector: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message.replace('(', '.').replace(')', '.')}$"):
        Engine(Settings(), connectors=[connector])


def test_a_module_gives_the_connectors_it_defines(module: ModuleType) -> None:
    source = """
from syncline import Connector
from syncline.testing import ScriptedConnector

class Base(Connector): ...
class Tickets(Base): provider = "tickets"
class Mail(Connector): provider = "mail"
alias_of_another_name = None
tickets = Tickets()
"""
    exec(source, vars(module))

    found = connectors_in(MODULE)

    assert [type(connector).__name__ for connector in found] == ["Tickets", "Mail"]
    assert connectors_by_provider(found).keys() >= {"tickets", "mail"}


def test_a_name_for_the_same_connector_is_not_a_second_one(module: ModuleType) -> None:
    exec("from syncline import Connector", vars(module))
    exec("class Tickets(Connector): provider = 'tickets'\nOld = Tickets", vars(module))

    assert len(connectors_in(MODULE)) == 1


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        connectors_in("no_such_module")


def test_sync_must_be_written() -> None:
    with pytest.raises(NotImplementedError, match=r"Nameless does not define sync\(\)"):
        Nameless().sync(None, None)  # type: ignore[arg-type]

    assert Connector is Base
