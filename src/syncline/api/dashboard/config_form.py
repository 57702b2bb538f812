"""A form for a config, made from the JSON Schema that a connector declares."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from syncline.api.dashboard.form_fields import (
    MISSING,
    Field,
    Kind,
    WrongText,
    may_be_shown,
    read_value,
    said,
    visible_json,
    written,
)
from syncline.errors import Invalid

PREFIX = "config."
REST = "config"  # the field for what the schema does not name, or for the whole config
KEPT = "Stored, and not shown because it holds a secret. Leave it empty to keep it."


@dataclass(frozen=True, slots=True)
class ConfigForm:
    """The fields of a config. `read` returns the config that the typed texts make."""

    schema: Mapping[str, Any]
    stored: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        found = self.schema.get("properties")
        known = found.items() if isinstance(found, Mapping) else ()
        return {name: rules for name, rules in known if isinstance(rules, Mapping)}

    def fields(
        self, typed: Mapping[str, str] | None = None, errors: Mapping[str, str] | None = None
    ) -> list[Field]:
        """Return the fields with what is stored, or what was typed, and the errors beside it."""
        drawn = [self._field(name, rules) for name, rules in self.properties.items()]
        if self._takes_more:
            drawn.append(self._rest())
        return [
            replace(one, value=_shown(one, typed), error=(errors or {}).get(one.name, ""))
            for one in drawn
        ]

    def read(self, typed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the config, and what is wrong with the texts, by field."""
        errors: dict[str, str] = {}
        config = self._read_rest(typed, errors)
        for name, rules in self.properties.items():
            try:
                value = self._read(name, rules, typed.get(PREFIX + name, ""))
            except WrongText as wrong:
                errors[PREFIX + name] = said(str(wrong))
                continue
            if value is not MISSING:
                config[name] = value
        return config, errors

    def _read(self, name: str, rules: Mapping[str, Any], text: str) -> Any:
        """Return the value of a field. One that nobody touched keeps its value, whatever it is."""
        kind, stored = _kind(rules), self.stored.get(name, MISSING)
        is_kept = not text and self._is_kept(name, rules)
        if is_kept or text.replace("\r\n", "\n") == written(stored, kind):
            return stored
        return read_value(kind, text, _choices(rules) or {})

    def errors_of(self, problems: Iterable[Invalid]) -> dict[str, str]:
        """Return the problems by the field at which they are shown."""
        errors: dict[str, str] = {}
        for problem in problems:
            path = problem.field.removeprefix(PREFIX)
            name = next((one for one in self.properties if _is_inside(path, one)), None)
            if name is None:
                where = "" if problem.field == REST else f"{path}: "
                errors.setdefault(REST, said(f"{where}{problem.reason}"))
            else:
                inside = path.removeprefix(name).lstrip(".")
                where = f"{inside}: " if inside else ""
                errors.setdefault(PREFIX + name, said(f"{where}{problem.reason}"))
        return errors

    @property
    def _takes_more(self) -> bool:
        is_open = self.schema.get("additionalProperties") is not False or not self.properties
        return is_open or bool(self._more_stored)

    @property
    def _more_stored(self) -> dict[str, Any]:
        known = self.properties
        return {name: value for name, value in self.stored.items() if name not in known}

    def _field(self, name: str, rules: Mapping[str, Any]) -> Field:
        kind, default = _kind(rules), rules.get("default")
        value = written(self.stored.get(name, MISSING), kind)
        hints = [_text(rules.get("description")), _lines_hint(rules) if kind == "lines" else ""]
        if self._is_kept(name, rules):
            kind, value, hints = "secret_json" if kind == "json" else "secret", "", [*hints, KEPT]
        required = self.schema.get("required")
        is_required = isinstance(required, list) and name in required and default is None
        return Field(
            PREFIX + name,
            _label(name, rules),
            kind,
            value,
            " ".join(filter(None, hints)),
            list(_choices(rules) or ()),
            "" if default is None else written(default, "text"),
            is_required and not self._is_kept(name, rules),
            minimum=_bound(rules, "minimum"),
            maximum=_bound(rules, "maximum"),
        )

    def _is_kept(self, name: str, rules: Mapping[str, Any]) -> bool:
        """Return whether the stored value is not shown, so that an empty field keeps it."""
        if name not in self.stored:
            return False
        return _is_secret(rules) or not may_be_shown(written(self.stored[name], "json"))

    def _rest(self) -> Field:
        more, is_whole = self._more_stored, not self.properties
        text = visible_json(more) if more else ""
        hint = (
            "The whole config, an object in JSON. This connector declares no fields."
            if is_whole
            else "Settings that have no field above: an object in JSON."
        )
        field = Field(REST, "Config" if is_whole else "More settings", "json", text, hint)
        if may_be_shown(text):
            return field
        return replace(field, kind="secret_json", value="", hint=f"{hint} {KEPT}")

    def _read_rest(self, typed: Mapping[str, str], errors: dict[str, str]) -> dict[str, Any]:
        if not self._takes_more:
            return {}
        kind = self._rest().kind
        try:
            value = read_value(kind, typed.get(REST, ""), {})
        except WrongText as wrong:
            errors[REST] = said(str(wrong))
            return {}
        if value is MISSING:
            return self._more_stored if kind == "secret_json" else {}
        if not isinstance(value, dict):
            errors[REST] = 'Is not an object. Write one such as {"url": "https://…"}'
            return {}
        return value


def _shown(field: Field, typed: Mapping[str, str] | None) -> str:
    """Return the text to draw: what was typed, unless it is a secret; otherwise what is stored."""
    if field.kind in ("secret", "secret_json"):
        return ""
    if typed is None:
        return field.value
    text = typed.get(field.name, "")
    return text if may_be_shown(text) else ""


def _kind(rules: Mapping[str, Any]) -> Kind:
    if _choices(rules) is not None:
        return "choice"
    rules = _main(rules)
    kind = rules.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if kind == "string":
        return "secret" if _is_secret(rules) else "text"
    if kind in ("integer", "number"):
        return "number"
    items = rules.get("items")
    if kind == "array" and isinstance(items, Mapping) and items.get("type") == "string":
        return "lines"
    return "secret_json" if _is_secret(rules) else "json"


def _main(rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only choice besides null, with what stands around it."""
    choices = rules.get("anyOf")
    if not isinstance(choices, list):
        return rules
    others = [one for one in choices if isinstance(one, Mapping) and one.get("type") != "null"]
    return {**rules, **others[0]} if len(others) == 1 else rules


def _choices(rules: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of a choice by the text that stands for them."""
    rules = _main(rules)
    listed = rules.get("enum")
    if "const" in rules:
        listed = [rules["const"]]
    if isinstance(listed, list) and listed:
        return {written(one, "text"): one for one in listed if one is not None}
    if rules.get("type") == "boolean":
        return {"true": True, "false": False}
    return None


def _lines_hint(rules: Mapping[str, Any]) -> str:
    choices = _main(rules)["items"].get("enum")
    some = ", ".join(map(str, choices)) if isinstance(choices, list) else ""
    return f"One per line: {some}." if some else "One per line."


def _is_secret(rules: Mapping[str, Any]) -> bool:
    rules = _main(rules)
    marks = (rules.get("writeOnly"), rules.get("airbyte_secret"), rules.get("secret"))
    return True in marks or rules.get("format") == "password"


def _label(name: str, rules: Mapping[str, Any]) -> str:
    """Return the title as people write it: pydantic makes `Base Url` of `base_url`."""
    title = _text(rules.get("title"))
    made = name.replace("_", " ").title()
    if not title or title == made:
        words = name.replace("_", " ")
        title = words[:1].upper() + words[1:]
    return " ".join("URL" if word.lower() == "url" else word for word in title.split())


def _is_inside(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))


def _bound(rules: Mapping[str, Any], keyword: str) -> float | None:
    found = _main(rules).get(keyword)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def form_of(schema: Mapping[str, Any] | None, stored: Any = None) -> ConfigForm:
    """Return the form of a config; without a schema it is a single field of JSON."""
    return ConfigForm(schema or {}, stored if isinstance(stored, Mapping) else {})
