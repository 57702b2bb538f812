"""A form for credentials: the kinds that a connector takes, each with its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.api.dashboard.form_fields import MISSING, Field, Kind, WrongText, read_value, said

CHOSEN = "auth"  # the name of the field that holds the kind
NONE = "none"
TYPE_AGAIN = "Type the secrets again: they are never sent back to a page."
GRANT: tuple[tuple[str, str, Kind, bool], ...] = (
    ("token_url", "Token URL", "text", True),
    ("client_id", "Client id", "text", False),
    ("client_secret", "Client secret", "secret", False),
    ("scope", "Scope", "text", False),
)
FIELDS: dict[str, tuple[str, tuple[tuple[str, str, Kind, bool], ...]]] = {
    NONE: ("None", ()),
    "token": ("Token", (("token", "Token", "secret", True),)),
    "basic": (
        "User name and password",
        (
            ("username", "User name", "text", True),
            ("password", "Password", "secret", True),
        ),
    ),
    "oauth2": (
        "OAuth 2, signed in",
        (
            ("access_token", "Access token", "secret", True),
            ("refresh_token", "Refresh token", "secret", False),
            ("expires_at", "Expires at, in Unix seconds", "number", False),
            *((name, label, kind, False) for name, label, kind, _ in GRANT),
        ),
    ),
    "oauth2_grant": ("OAuth 2, client credentials", GRANT),
    "headers": ("Headers", (("headers", "Headers, an object in JSON", "secret_json", True),)),
    "query": (
        "Parameters in the URL",
        (("query", "Parameters, an object in JSON", "secret_json", True),),
    ),
    "ssh_key": ("SSH key", (("private_key", "Private key", "secret_json", True),)),
    "any": ("JSON", (("json", "Credentials, an object in JSON", "secret_json", True),)),
}
UNDECLARED = (NONE, "token", "basic", "oauth2", "any")
ALWAYS = {"oauth2_grant": {"grant_type": "client_credentials"}}


@dataclass(frozen=True, slots=True)
class CredentialKind:
    name: str
    label: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class CredentialForm:
    """The kinds of credentials to choose from. Secrets are read, and never drawn."""

    kinds: Sequence[str]

    def drawn(
        self, typed: Mapping[str, str] | None = None, errors: Mapping[str, str] | None = None
    ) -> list[CredentialKind]:
        """Return the kinds with what was typed, except secrets."""
        return [
            CredentialKind(
                kind,
                FIELDS[kind][0],
                [
                    replace(one, value=_shown(one, typed), error=(errors or {}).get(one.name, ""))
                    for one in _fields(kind)
                ],
            )
            for kind in self.kinds
        ]

    def chosen(self, typed: Mapping[str, str] | None) -> str:
        """Return the kind that was chosen, or the first."""
        found = (typed or {}).get(CHOSEN, "")
        return found if found in self.kinds else self.kinds[0]

    def read(self, typed: Mapping[str, str]) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """Return the credentials, None for none, and what is wrong, by field."""
        kind = self.chosen(typed)
        values: dict[str, Any] = dict(ALWAYS.get(kind, {}))
        errors: dict[str, str] = {}
        for field in _fields(kind):
            _, _, name = field.name.split(".")
            is_key = name == "private_key"
            try:
                read_as: Kind = "secret" if is_key else field.kind
                value = read_value(read_as, typed.get(field.name, ""), {})
            except WrongText as wrong:
                errors[field.name] = said(str(wrong))
                continue
            if value is MISSING and field.is_required:
                errors[field.name] = "Is missing"
            elif field.kind == "secret_json" and not is_key and not isinstance(value, dict):
                errors[field.name] = "Is not an object"
            elif value is not MISSING:
                values |= value if name == "json" else {name: value}
        return (None if kind == NONE else values), errors


def credential_form(auth: Sequence[str] | None, *, may_be_none: bool = True) -> CredentialForm:
    """Return the form for the kinds that a connector declares."""
    declared = UNDECLARED if auth is None else [kind for kind in FIELDS if kind in auth]
    kinds = [kind for kind in declared if may_be_none or kind != NONE]
    return CredentialForm(kinds or ["any"])


def _fields(kind: str) -> list[Field]:
    return [
        Field(f"credentials.{kind}.{name}", label, drawn_as, is_required=is_required)
        for name, label, drawn_as, is_required in FIELDS[kind][1]
    ]


def _shown(field: Field, typed: Mapping[str, str] | None) -> str:
    is_secret = field.kind in ("secret", "secret_json")
    return "" if is_secret else (typed or {}).get(field.name, "")
