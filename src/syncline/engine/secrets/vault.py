"""Seal credentials for the database, and open them for a run."""

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from syncline.errors import Permanent, SyncError, Transient
from syncline.http.credentials import Credentials
from syncline.keyring import CannotOpen, KeyMissing, KeyRing
from syncline.redaction import LONGEST_TEXT, mask_secrets
from syncline.store.data.credentials import Stored

COLUMN = "credentials.sealed"
LONGEST_TRACE = 8_000  # characters; the last ones say most


class Vault:
    """Seals credentials for one connection and opens them for no other."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    @property
    def key_id(self) -> str:
        """The key that seals; without one it raises an error that says what to do."""
        return self._ring.first

    def seal(self, tenant_id: str, connection_id: UUID, values: Mapping[str, Any]) -> bytes:
        text = json.dumps(dict(values), ensure_ascii=False).encode()
        return self._ring.seal(text, _owner(tenant_id, connection_id))

    def open(self, stored: Stored) -> dict[str, Any]:
        """Return the credentials, or raise `CannotOpen`."""
        owner = _owner(stored.tenant_id, stored.connection_id)
        values: dict[str, Any] = json.loads(self._ring.open(stored.sealed, owner))
        return values

    def reseal(self, stored: Stored) -> bytes:
        """Return the same credentials under the first key."""
        return self.seal(stored.tenant_id, stored.connection_id, self.open(stored))

    def open_for_run(self, stored: Stored) -> dict[str, Any]:
        """Return the credentials, or raise the error that ends their run."""
        try:
            return self.open(stored)
        except KeyMissing as missing:  # another worker may have it, or this one after a restart
            raise Transient(f"the credentials cannot be opened here: {missing}") from None
        except CannotOpen as error:
            raise Permanent(f"the credentials cannot be opened: {error}") from None


def without_secrets(error: BaseException, credentials: object) -> BaseException:
    """Return the error as it may be stored and shown: the same kind, without secrets."""
    if not isinstance(credentials, Credentials):
        return error
    scrub = credentials.scrubber()
    text, details = _message_of(error)
    is_bounded = len(text) + len(details) <= LONGEST_TEXT
    if is_bounded and not scrub.finds_any(text) and not scrub.finds_any(details):
        return error
    clean = scrub(text)
    if isinstance(error, SyncError):
        error.message, error.args, error.details = clean, (clean,), None
        if not scrub.finds_any(_message_of(error)[0]):  # unless its class adds its own text
            return error
    if isinstance(error, TimeoutError):
        return TimeoutError(clean)
    stand_in: type[Exception] = type(type(error).__name__, (Exception,), {})
    return stand_in(clean)


def trace_without_secrets(error: BaseException, credentials: object) -> str:
    """Return the trace of an error for the log, without secrets."""
    try:
        text = "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # its own methods raise
        text = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
    return mask_for(credentials)(text, LONGEST_TEXT)[-LONGEST_TRACE:]


def mask_for(credentials: object) -> Callable[[str, int], str]:
    """Return the function that masks the secrets of a connection in text."""
    return credentials.scrubber() if isinstance(credentials, Credentials) else mask_secrets


def _message_of(error: BaseException) -> tuple[str, str]:
    """Return the message of an error, and its details as text."""
    try:
        details = getattr(error, "details", None) if isinstance(error, SyncError) else None
        return str(error), json.dumps(details, default=str, ensure_ascii=False)
    except Exception:  # its own methods raise, so there is no message
        return "", ""


def _owner(tenant_id: str, connection_id: UUID) -> tuple[str, str, str]:
    return tenant_id, str(connection_id), COLUMN
