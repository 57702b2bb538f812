"""The outcome of an attempt, and what it means for the job and its connection."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from syncline.errors import (
    ContractError,
    Deferred,
    Permanent,
    RateLimited,
    SyncError,
    Unauthorized,
)
from syncline.model import ConnectionStatus
from syncline.policy.backoff import Backoff, read_hint
from syncline.redaction import mask_secrets
from syncline.sdk.json_text import encode_json
from syncline.sdk.page import Page
from syncline.text import rfc3339

# As JSON, and together with the rest of the record below 4 kB.
MAX_CLASS_BYTES = 100
MAX_MESSAGE_BYTES = 2000
MAX_DETAILS_BYTES = 1000
MAX_IGNORED_BYTES = 200
LAPSES_TO_FAIL = 5
DEEPEST_CAUSE = 20  # of an error, that is looked at


@dataclass(frozen=True, slots=True)
class Raised:
    """The connector raised, or what it returned cannot be stored."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Stopped, but not failed: the process is ending, or its lease could not be kept."""


@dataclass(frozen=True, slots=True)
class Unrun:
    """Claimed for a connection that is not active."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Its worker stopped renewing the lease."""


Ending = Page | Raised | Interrupted | Unrun | Lapsed
"""How an attempt ended, before it is judged."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    page: Page


@dataclass(frozen=True, slots=True)
class Retry:
    """Back to the queue, counted; `lapses` is the number of lost leases in a row."""

    error: str
    error_class: str
    retry_after: datetime | None
    lapses: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """Ended for good; the connection gets `connection_status`, if there is one."""

    error: str
    error_class: str
    connection_status: ConnectionStatus | None = None
    reason: str | None = None
    lapses: int = 0


@dataclass(frozen=True, slots=True)
class Released:
    """Back to the queue as it was, eligible at once or when its provider may be called again."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Ended unrun."""


Outcome = Succeeded | Retry | Failed | Released | Cancelled


@dataclass(frozen=True, slots=True)
class FailureRules:
    backoff: Backoff
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class PriorFailures:
    """What failed before this attempt: attempts in all, and lost leases in a row."""

    attempts: int = 0
    lapses: int = 0


def judge(
    ending: Ending, rules: FailureRules, prior: PriorFailures, *, now: datetime, roll: float
) -> Outcome:
    """Return the outcome of an attempt."""
    match ending:
        case Page():
            return Succeeded(ending)
        case Raised(error) if deferred := find_deferred(error):
            return Released(now + timedelta(seconds=deferred.seconds))
        case Raised(error):
            return judge_failure(error, rules, attempts=prior.attempts, now=now, roll=roll)
        case Lapsed():
            return judge_lapse(rules.backoff, prior, now=now, roll=roll)
        case Interrupted():
            return Released()
        case Unrun():
            return Cancelled()
        case _:
            assert_never(ending)


def find_deferred(error: BaseException) -> Deferred | None:
    """Return the deferred call that an error comes from, whatever a connector has made of it."""
    found: BaseException | None = error
    for _ in range(DEEPEST_CAUSE):
        if found is None or isinstance(found, Deferred):
            return found
        found = found.__cause__ or found.__context__
    return None


def judge_failure(
    error: BaseException, rules: FailureRules, *, attempts: int, now: datetime, roll: float
) -> Retry | Failed:
    """Return what becomes of a job whose attempt raised this error."""
    kind, message = _kind(error), _message(error)
    hint, ignored = _hint(error)
    hinted = hint is not None and hint >= rules.backoff.curve(attempts)
    record = ErrorRecord(
        kind,
        message,
        attempt=attempts + 1,
        time=now,
        hint=hint,
        hinted=hinted,
        details=_attribute(error, "details") if isinstance(error, SyncError) else None,
        ignored=ignored,
    ).to_json()
    if isinstance(error, Permanent):
        return Failed(record, kind, ConnectionStatus.ERROR, reason=message)
    if isinstance(error, Unauthorized):
        return Failed(record, kind, ConnectionStatus.NEEDS_REAUTH, reason=message)
    if rules.max_attempts is not None and attempts + 1 >= rules.max_attempts:
        return Failed(record, kind)
    return Retry(record, kind, now + rules.backoff.delay(attempts, roll, hint))


def judge_lapse(
    backoff: Backoff, prior: PriorFailures, *, now: datetime, roll: float
) -> Retry | Failed:
    """Return what becomes of a job whose lease lapsed."""
    lapses = prior.lapses + 1
    message = f"the worker's lease lapsed ({lapses} in a row)"
    record = ErrorRecord("LeaseLapsed", message, attempt=prior.attempts + 1, time=now).to_json()
    if lapses >= LAPSES_TO_FAIL:
        return Failed(record, "LeaseLapsed", ConnectionStatus.ERROR, message, lapses)
    wait = backoff.delay(prior.attempts, roll) if lapses > 1 else timedelta()
    return Retry(record, "LeaseLapsed", now + wait if wait else None, lapses)


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error as it is stored on its job."""

    kind: str
    message: str
    attempt: int
    time: datetime
    hint: timedelta | None = None  # how long the provider asked to wait
    hinted: bool = False  # whether the hint decided the wait
    details: Mapping[str, Any] | None = None
    ignored: str | None = None  # the part of the error that could not be read

    def to_json(self) -> str:
        """Return JSON of at most 4 kB."""
        record: dict[str, Any] = {
            "class": self.kind,
            "message": self.message,
            "attempt": self.attempt,
            "time": rfc3339(self.time),
        }
        if self.hint is not None:
            record |= {"hint": self.hint.total_seconds(), "hinted": self.hinted}
        if self.details is not None:
            record["details"] = _storable_details(self.details)
        if self.ignored is not None:
            record["details"] = record.get("details", {}) | {"ignored": self.ignored}
        return json.dumps(record, ensure_ascii=False)


def storable_text(text: str, limit: int) -> str:
    """Return text without what Postgres cannot store, cut to a number of bytes as JSON."""
    clean = text[:limit].replace("\0", "�").encode(errors="replace").decode()
    while (excess := len(json.dumps(clean, ensure_ascii=False).encode()) - 2 - limit) > 0:
        clean = clean[: -max(1, excess // 6)]  # no character takes more than six bytes
    return clean


def _hint(error: BaseException) -> tuple[timedelta | None, str | None]:
    """Return how long the provider asked to wait, or why its hint is ignored."""
    if not isinstance(error, RateLimited):
        return None, None
    try:
        return read_hint(_attribute(error, "retry_after_seconds")), None
    except ValueError as unreadable:
        return None, storable_text(f"retry_after_seconds: {unreadable}", MAX_IGNORED_BYTES)


def _attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of an error; None if its class has none."""
    try:
        return getattr(error, name, None)
    except Exception:  # a property may raise; the job must still get its error
        return None


def _kind(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "Timeout"
    if isinstance(error, SyncError | ContractError):
        return storable_text(type(error).__name__, MAX_CLASS_BYTES)
    return "Unexpected"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # whatever the exception's own code does, the job must get its error
        text = "(its message cannot be shown)"
    if isinstance(error, TimeoutError) and not text:
        text = "timed out"
    elif not isinstance(error, SyncError | ContractError):
        text = f"{type(error).__name__}: {text}"
    return storable_text(mask_secrets(text, MAX_MESSAGE_BYTES), MAX_MESSAGE_BYTES)


def _storable_details(details: Mapping[str, Any]) -> Any:
    try:
        return json.loads(encode_json(dict(details), limit=MAX_DETAILS_BYTES, where="details"))
    except Exception as error:
        return {"omitted": storable_text(_message(error), 200)}
