"""What a browser sent with a form, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fastapi import Request

from syncline.api.auth import Principal, check_csrf
from syncline.api.dashboard.config_form import REST, ConfigForm, form_of
from syncline.api.dashboard.credential_form import (
    CHOSEN,
    TYPE_AGAIN,
    CredentialForm,
    credential_form,
)
from syncline.api.dashboard.form_fields import Kind, WrongText, read_value, said
from syncline.errors import Conflict, Invalid, Refused, SettingsError
from syncline.sdk.declarations import Declaration


@dataclass(slots=True)
class Submitted:
    """What a browser sent, and what is wrong with it, by the field at which it is shown."""

    typed: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    existing_id: UUID | None = None

    def is_ticked(self, name: str) -> bool:
        return name in self.typed

    def read(self, name: str, kind: Kind) -> Any:
        """Return the value of a field, or note what is wrong with it."""
        try:
            return read_value(kind, self.typed.get(name, ""), {})
        except WrongText as wrong:
            self.errors[name] = said(str(wrong))
            return None

    def refuse(self, error: Exception) -> None:
        """Note a refusal at its field; what is no refusal goes on."""
        match error:
            case Invalid():
                self.errors.setdefault(error.field, said(error.reason))
            case Conflict():
                self.existing_id = error.existing_id
                self.errors.setdefault("", said(str(error)))
            case SettingsError():  # no key to encrypt credentials with
                self.errors.setdefault(CHOSEN, said(str(error)))
            case Refused():
                self.errors.setdefault("", said(str(error)))
            case _:
                raise error


async def read_submitted(request: Request, viewer: Principal) -> Submitted:
    """Return the texts of the form that a browser sent."""
    form = await request.form(max_fields=1000)
    typed = {name: value for name, value in form.items() if isinstance(value, str)}
    check_csrf(viewer, typed.get("csrf", ""))
    return Submitted(typed)


def forms_of(
    declaration: Declaration | None, stored: Any = None, *, may_be_none: bool = True
) -> tuple[ConfigForm, CredentialForm]:
    """Return the forms for what a connector declares; None if nobody knows the provider."""
    schema = None if declaration is None else declaration.config_schema
    auth = None if declaration is None else declaration.auth
    return form_of(schema, stored), credential_form(auth, may_be_none=may_be_none)


def credential_values(form: CredentialForm, sent: Submitted) -> dict[str, Any]:
    return {
        "kinds": form.drawn(sent.typed, sent.errors),
        "chosen": form.chosen(sent.typed),
        "auth_error": sent.errors.get(CHOSEN, ""),
        "again": TYPE_AGAIN if sent.errors and form.chosen(sent.typed) != "none" else "",
    }


def note_problems(sent: Submitted, form: ConfigForm, problems: Sequence[Invalid]) -> None:
    """Put what the connector refuses at its fields; what could not be read says more already."""
    config = [one for one in problems if one.field == REST or one.field.startswith(f"{REST}.")]
    for name, error in form.errors_of(config).items():
        sent.errors.setdefault(name, error)
    is_credential_wrong = any(name.startswith("credentials.") for name in sent.errors)
    for problem in problems:
        if problem.field == "credentials" and not is_credential_wrong:
            sent.errors.setdefault(CHOSEN, said(problem.reason))
        elif problem.field == "provider_slug":
            sent.errors.setdefault(problem.field, said(problem.reason))
