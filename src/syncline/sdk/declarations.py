"""What a connector declares about its connections: a title, its config and its credentials."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isclass
from typing import Any

from syncline.errors import Invalid
from syncline.sdk.connector import Connector
from syncline.sdk.json_schema import schema_problems, without_references

# The fields that credentials of a kind must have. "none" means that they may be left out.
AUTH_FIELDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "token": ("token",),
    "basic": ("username", "password"),
    "oauth2": ("access_token",),
    "oauth2_grant": ("token_url",),
    "headers": ("headers",),
    "query": ("query",),
    "ssh_key": ("private_key",),
    "any": (),
}
MOST_SHARED = 65_536  # characters of a schema; a longer one is known to its own process only


@dataclass(frozen=True, slots=True)
class Declaration:
    """A provider as forms show it. `auth` and `config_schema` are None if none are declared."""

    provider_slug: str
    title: str
    auth: Sequence[str] | None = None
    config_schema: Mapping[str, Any] | None = None


def declaration_of(provider: str, connector: Connector) -> Declaration:
    """Return what a connector declares; a pydantic model is given as its JSON Schema."""
    schema: Any = getattr(connector, "config_schema", None)
    if isclass(schema):
        model: Any = schema
        schema = without_references(model.model_json_schema())
    auth = getattr(connector, "auth", None)
    title = getattr(connector, "title", None) or provider
    return Declaration(provider, title, None if auth is None else tuple(auth), schema)


def config_problems(connector: Connector, config: Mapping[str, Any] | None) -> Iterator[Invalid]:
    """Yield each field of a config that breaks a rule of the connector."""
    schema, given = getattr(connector, "config_schema", None), dict(config or {})
    if isclass(schema):
        yield from _model_problems(schema, given)
    elif schema is not None:
        for field, rule in schema_problems(given, schema, "config"):
            yield Invalid(field, rule)


def _model_problems(model: Any, config: dict[str, Any]) -> Iterator[Invalid]:
    from pydantic import ValidationError

    try:
        model.model_validate(config)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            path = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
            yield Invalid("config" + "".join(path), f"is wrong: {found['msg']}")


def credential_problem(
    connector: Connector, credentials: Mapping[str, Any] | None
) -> Invalid | None:
    """Return why credentials are of no kind that the connector takes; it never quotes them."""
    return wrong_credentials(getattr(connector, "auth", None), credentials)


def wrong_credentials(
    kinds: Sequence[str] | None, credentials: Mapping[str, Any] | None
) -> Invalid | None:
    """Return why credentials are of none of these kinds; it never quotes them."""
    if kinds is None or credentials is None:
        return None
    needed = [AUTH_FIELDS.get(kind, ()) for kind in kinds if kind != "none"]
    if any(all(name in credentials for name in fields) for fields in needed):
        return None
    if not needed:
        return Invalid("credentials", "are not used by this provider; leave them out")
    ways = ", or ".join(" and ".join(fields) for fields in needed)
    return Invalid("credentials", f"must have {ways}")


def shared_declarations(providers: Mapping[str, Connector]) -> dict[str, Any]:
    """Return what connectors declare, by provider, for processes that do not have them."""
    found = {}
    for provider, connector in providers.items():
        one = declaration_of(provider, connector)
        schema = one.config_schema
        if len(json.dumps(schema, default=str)) > MOST_SHARED:
            schema = None
        found[provider] = {"title": one.title, "auth": one.auth, "config_schema": schema}
    return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]


def shared_declaration(provider: str, shared: Any) -> Declaration:
    """Return what another process declares; nothing if it is not what we would write."""
    told = shared if isinstance(shared, Mapping) else {}
    title, auth, schema = (told.get(name) for name in ("title", "auth", "config_schema"))
    return Declaration(
        provider,
        title if isinstance(title, str) and title else provider,
        tuple(map(str, auth)) if isinstance(auth, list) else None,
        schema if isinstance(schema, Mapping) else None,
    )


def unknown_provider(provider: str, known: Sequence[str]) -> Invalid:
    """Return the refusal of a provider that nobody serves, with the nearest name."""
    near = get_close_matches(provider, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`syncline providers` lists those known here"
    return Invalid("provider_slug", f"is {provider!r}, which no connector serves here; {hint}")
