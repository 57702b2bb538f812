"""Fields of forms: what a template draws, and how the text that people type becomes a value."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from syncline.redaction import mask_secrets
from syncline.text import one_line

Kind = Literal["text", "number", "secret", "choice", "lines", "json", "secret_json"]
MISSING: Any = object()
LARGEST = 300_000  # characters of a field; the rules for configs have their own bound


@dataclass(frozen=True, slots=True)
class Field:
    """One input. `value` never holds a secret, so it may be shown."""

    name: str
    label: str
    kind: Kind = "text"
    value: str = ""
    hint: str = ""
    choices: Sequence[str] = ()
    default: str = ""
    is_required: bool = False
    error: str = ""
    minimum: float | None = None
    maximum: float | None = None

    @property
    def id(self) -> str:
        """The field's id on the page."""
        return "f-" + "".join(char if char.isalnum() else "-" for char in self.name)


class WrongText(Exception):
    """What was typed is not a value of this kind; the message says what to type."""


def read_value(kind: Kind, text: str, choices: Mapping[str, Any]) -> Any:
    """Return the value that a text stands for; MISSING if the field is empty."""
    if kind != "secret":
        text = text.strip()
    if not text:
        return MISSING
    if len(text) > LARGEST:
        raise WrongText(f"has {len(text):,} characters; {LARGEST:,} is the most")
    return _choice(text, choices) if kind == "choice" else READERS[kind](text)


def _choice(text: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        raise WrongText("is none of the choices")
    return choices[text]


def _text(text: str) -> str:
    return text.replace("\r\n", "\n")


def _lines(text: str) -> Any:
    if text.startswith("["):
        return _json(text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _number(text: str) -> int | float:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise WrongText("is not a number") from None


def _json(text: str, *, is_secret: bool = False) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise WrongText("is nested too deeply") from None
    except ValueError as error:
        where = (
            f"line {error.lineno}, column {error.colno}: {error.msg}"
            if isinstance(error, json.JSONDecodeError) and not is_secret
            else "check its quotes and commas"
        )
        raise WrongText(f"is not JSON ({where})") from None


def _secret_json(text: str) -> Any:
    return _json(text, is_secret=True)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


READERS: dict[Kind, Callable[[str], Any]] = {
    "text": _text,
    "secret": _text,
    "number": _number,
    "lines": _lines,
    "json": _json,
    "secret_json": _secret_json,
}


def written(value: Any, kind: Kind) -> str:
    """Return a stored value as the text of its field."""
    if value is MISSING or value is None:
        return ""
    if kind == "lines" and _are_lines(value):
        return "\n".join(value)
    if isinstance(value, str) and kind in ("text", "number", "choice", "secret"):
        return value
    return visible_json(value, indent=2 if kind == "json" else None)


def visible_json(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON in which characters that cannot be seen are escapes, which mean the same."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def _are_lines(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, str)
        and item
        and item == item.strip()
        and len(item.splitlines()) == 1
        and not item.startswith("[")
        for item in value
    )


def may_be_shown(text: str) -> bool:
    """Return whether a text holds nothing that looks like a secret, such as a URL's password."""
    return mask_secrets(text) == text


def said(reason: str) -> str:
    """Return a rule as it stands beside a field, with a capital."""
    line = one_line(reason)
    return line[:1].upper() + line[1:]
