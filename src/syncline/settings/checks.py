"""Checks of settings, and the one-line message for a bad one: its name, value and bounds."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Annotated, Any, NoReturn, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from syncline.errors import SettingsError
from syncline.redaction import mask_secrets

PREFIX = "SYNCLINE_"
MAX_SCHEMA_BYTES = 63  # Postgres truncates longer names
AUTO, MOST_AT_ONCE = "auto", 10_000
DISAGREEMENT = "disagreement"
MAX_SHOWN = 100
WORDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
FIELD_OF_PARSE_ERROR = re.compile(r'field "(\w+)"')


class Component(BaseModel):
    """Settings that belong together: frozen, and without unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def check_schema(name: str) -> str:
    if not name.isprintable() or not 0 < len(name.encode(errors="replace")) <= MAX_SCHEMA_BYTES:
        raise ValueError(f"it must be printable text of 1 to {MAX_SCHEMA_BYTES} bytes")
    if name.startswith("pg_"):
        raise ValueError("names that begin with pg_ are reserved for Postgres")
    return name


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host, by any of its addresses."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)


def read_concurrency(value: Any) -> Any:
    """Return "auto" or a number; an environment variable holds either as text."""
    text = str(value).strip()
    if text == AUTO:
        return AUTO
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text) <= MOST_AT_ONCE:
        raise ValueError(f'it must be "{AUTO}" or an integer from 1 to {MOST_AT_ONCE}')
    return int(text)


def split_names(names: Any) -> Any:
    """Split text at its commas, as in an environment variable; return anything else unchanged."""
    if isinstance(names, str):
        return [part.strip() for part in names.split(",") if part.strip()]
    return names


def check_networks(networks: list[str]) -> list[str]:
    """Refuse anything but addresses and networks: names, and `*`, which would trust everybody."""
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ValueError(
                f"{network!r} is not an address or network such as 10.0.0.0/8"
            ) from None
    return networks


def as_secret(value: Any) -> Any:
    """Wrap any value as a secret, so that no message about its type can quote it."""
    return value if value is None or isinstance(value, SecretStr) else SecretStr(str(value))


Secret = Annotated[SecretStr | None, BeforeValidator(as_secret)]


def refuse_unknown_components(names: Iterable[str], settings: type[BaseModel]) -> None:
    """Refuse names such as `SYNCLINE_SHEDULER__…`, which would otherwise be ignored silently.

    Names without a double underscore are ignored: containers have many that are not settings.
    """
    for name in names:
        component, delimiter, _ = name.upper().removeprefix(PREFIX).partition("__")
        is_ours = name.upper().startswith(PREFIX) and delimiter
        if is_ours and component.lower() not in settings.model_fields:
            raise SettingsError(f"{name}: there is no such setting")


def disagree(message: str) -> NoReturn:
    """Refuse values that contradict each other; the message begins with the name of a setting."""
    raise PydanticCustomError(DISAGREEMENT, "{message}", {"message": message})


def explain(error: ValidationError, settings: type[BaseModel]) -> str:
    """Return the first error as one line: the setting, its value, and its bounds."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    if first["type"] == DISAGREEMENT:
        return f"{name}.{message}"
    field = _find(settings, first["loc"])
    must_be = (_bounds(field) if field else "") or message[0].lower() + message[1:]
    return mask_secrets(f"{name} is {_shown(first['input'])}; {must_be}")


def explain_unparsed(error: Exception) -> str:
    """Return which environment variable cannot be parsed."""
    found = FIELD_OF_PARSE_ERROR.search(str(error))
    name = found[1] if found else "a setting"
    return f"{name} cannot be parsed; {PREFIX}{name.upper()}… must be JSON"


def _find(model: type[BaseModel], location: tuple[int | str, ...]) -> FieldInfo | None:
    """Return the field at a location, through components and providers."""
    name, *rest = (str(part) for part in location)
    field = model.model_fields.get(name)
    if field is None or not rest:
        return field
    inner: Any = field.annotation
    if not hasattr(inner, "model_fields"):  # a component per provider: the next part is its key
        inner, rest = (get_args(inner) or (None,))[-1], rest[1:]
    return _find(inner, tuple(rest)) if rest and hasattr(inner, "model_fields") else None


def _bounds(field: FieldInfo) -> str:
    """Return what a numeric setting must be, or an empty text if it has no bounds."""
    limits = [
        f"{words} {getattr(rule, name)}"
        for rule in field.metadata
        for name, words in WORDS.items()
        if getattr(rule, name, None) is not None
    ]
    if not limits:
        return ""
    is_integer = int in (field.annotation, *get_args(field.annotation))
    return f"it must be {'an integer' if is_integer else 'a number'}, {' and '.join(limits)}"


def _shown(value: object) -> str:
    text = mask_secrets(repr(value))
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
