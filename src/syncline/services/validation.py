"""Checks of arguments, and rows that must exist."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.errors import ContractError, Invalid, NotFound
from syncline.model import Connection, Job
from syncline.policy.schedule import EARLIEST, LATEST, MINIMUM_INTERVAL_SECONDS
from syncline.sdk.json_text import encode_json
from syncline.store.data import connections
from syncline.store.data.connections import LockedConnection
from syncline.store.pool import Transaction
from syncline.store.queue import triggers

MAX_CONFIG_BYTES = 256_000
MAX_CREDENTIALS_BYTES = 64_000


async def lock_connection(
    tx: Transaction, connection_id: UUID, tenant_id: str | None
) -> LockedConnection:
    found = (await connections.lock(tx, [connection_id])).get(connection_id)
    if found is None or tenant_id not in (None, found.tenant_id):
        raise NotFound("connection", connection_id)
    return found


async def get_connection(tx: Transaction, connection_id: UUID, tenant_id: str | None) -> Connection:
    connection = await connections.get(tx, connection_id, tenant_id)
    if connection is None:
        raise NotFound("connection", connection_id)
    return connection


async def get_job(tx: Transaction, job_id: UUID, tenant_id: str | None) -> Job:
    job = await triggers.get(tx, job_id, tenant_id)
    if job is None:
        raise NotFound("job", job_id)
    return job


def check_text(
    field: str, text: str, *, characters: int | None = None, octets: int | None = None
) -> None:
    """Refuse a text that is empty, too long, or that Postgres cannot store."""
    _check_storable(field, text)
    size = len(text.encode())
    if characters is not None and len(text) > characters:
        raise Invalid(field, f"has {len(text)} characters; {characters} is the most")
    if octets is not None and size > octets:
        raise Invalid(field, f"has {size} bytes; {octets} is the most")


def check_filters(**filters: str | None) -> None:
    """Refuse a filter that no stored text can match."""
    for field, text in filters.items():
        if text is not None:
            _check_storable(field, text)


def _check_storable(field: str, text: str) -> None:
    if not isinstance(text, str) or not text or "\0" in text:
        raise Invalid(field, f"is {text!r}; it must be a non-empty text without NUL")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Invalid(field, "holds a lone surrogate; it must be valid Unicode")


def check_times(**times: datetime | None) -> None:
    for field, instant in times.items():
        if instant is not None and instant.tzinfo is None:
            raise Invalid(field, f"is {instant}; it must have a zone, such as Z")
        if instant is not None and not EARLIEST <= instant <= LATEST:
            raise Invalid(field, f"is {instant}; it must lie in the years 2 to 9997")


def check_config(config: dict[str, Any] | None) -> None:
    if config is None:
        return
    if not isinstance(config, dict):
        raise Invalid("config", f"is {type(config).__name__}; it must be an object")
    storable_json("config", config, limit=MAX_CONFIG_BYTES)


def check_credentials(credentials: dict[str, Any]) -> None:
    if not isinstance(credentials, dict) or not credentials:
        raise Invalid("credentials", "must be an object with at least one member")
    storable_json("credentials", credentials, limit=MAX_CREDENTIALS_BYTES)


def storable_json(field: str, value: Any, *, limit: int) -> str:
    """Return the value as JSON, or refuse it."""
    try:
        return encode_json(value, limit=limit, where=field)
    except ContractError as error:
        raise Invalid(field, f"cannot be stored: {error.reason}") from None


def check_choice(field: str, value: str, choices: Iterable[str]) -> None:
    known = list(choices)
    if value not in known:
        raise Invalid(field, f"is {value!r}; it must be one of {', '.join(known)}")


def check_interval(seconds: int, longest: int) -> None:
    is_integer = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not is_integer or not MINIMUM_INTERVAL_SECONDS <= seconds <= longest:
        allowed = f"an integer from {MINIMUM_INTERVAL_SECONDS} to {longest}"
        raise Invalid("interval_seconds", f"is {seconds!r}; it must be {allowed}")
