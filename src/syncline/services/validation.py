"""What the calls that serve people share: finding rows, and checking what was given."""

from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from syncline.errors import ContractError
from syncline.model import Connection, Job
from syncline.policy.schedule import EARLIEST, LATEST
from syncline.sdk.json_text import encode_json
from syncline.store.data import connections
from syncline.store.data.connections import LockedConnection
from syncline.store.pool import Transaction
from syncline.store.queue import triggers

T = TypeVar("T")
MAX_CONFIG_BYTES = 256_000
MAX_CREDENTIALS_BYTES = 64_000


async def lock_connection(
    tx: Transaction, connection_id: UUID, tenant_id: str | None
) -> LockedConnection:
    found = (await connections.lock(tx, [connection_id])).get(connection_id)
    if found is None or tenant_id not in (None, found.tenant_id):
        raise not_found("connection", connection_id)
    return found


async def get_connection(tx: Transaction, connection_id: UUID, tenant_id: str | None) -> Connection:
    connection = await connections.get(tx, connection_id, tenant_id)
    if connection is None:
        raise not_found("connection", connection_id)
    return connection


async def get_job(tx: Transaction, job_id: UUID, tenant_id: str | None) -> Job:
    job = await triggers.get(tx, job_id, tenant_id)
    if job is None:
        raise not_found("job", job_id)
    return job


def not_found(what: str, id_: UUID) -> LookupError:
    return LookupError(f"there is no {what} {id_}")


def check_text(
    name: str, text: str, *, characters: int | None = None, octets: int | None = None
) -> None:
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} is {text!r}; it must be a non-empty text without NUL")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate") from None
    if characters is not None and len(text) > characters:
        raise ValueError(f"{name} has {len(text)} characters; {characters} is the most")
    if octets is not None and size > octets:
        raise ValueError(f"{name} has {size} bytes; {octets} is the most")


def check_filters(**filters: str | None) -> None:
    """Refuse what no stored text can be equal to, and no database can be asked for."""
    for name, text in filters.items():
        if text is not None and (not isinstance(text, str) or not text or "\0" in text):
            raise ValueError(f"{name} is {text!r}; it must be a non-empty text without NUL")
        if text is not None and not text.isascii() and _has_surrogate(text):
            raise ValueError(f"{name} holds a lone surrogate")


def check_times(since: datetime | None, until: datetime | None) -> None:
    for name, instant in (("since", since), ("until", until)):
        if instant is not None and instant.tzinfo is None:
            raise ValueError(f"{name} is {instant}; it must have a zone, such as Z")
        if instant is not None and not EARLIEST <= instant <= LATEST:
            raise ValueError(f"{name} is {instant}; it must lie in the years 2 to 9997")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_config(config: dict[str, Any] | None, name: str = "config") -> None:
    if config is None:
        return
    if not isinstance(config, dict):
        raise ValueError(f"{name} is {type(config).__name__}; it must be an object")
    json_or_value_error(config, limit=MAX_CONFIG_BYTES, where=name)


def check_credentials(credentials: dict[str, Any]) -> None:
    if not isinstance(credentials, dict) or not credentials:
        raise ValueError("credentials must be an object that holds something")
    json_or_value_error(credentials, limit=MAX_CREDENTIALS_BYTES, where="credentials")


def json_or_value_error(value: Any, *, limit: int, where: str) -> str:
    try:
        return encode_json(value, limit=limit, where=where)
    except ContractError as error:
        raise ValueError(str(error)) from None


def check_choice(name: str, value: str, choices: Any) -> None:
    if value not in list(choices):
        known = ", ".join(choices)
        raise ValueError(f"{name} is {value!r}; it must be one of {known}")
