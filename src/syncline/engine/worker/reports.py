"""What is kept of a run beside its page: why it failed, or what it brought."""

import hashlib
import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from syncline.engine.secrets.vault import mask_for
from syncline.engine.worker.traces import short_trace
from syncline.model import JobType
from syncline.policy.cursor import effective_cursor
from syncline.policy.outcome import Raised, storable_text
from syncline.sdk.page import Page
from syncline.store.data.attempts import AttemptReport

if TYPE_CHECKING:
    from syncline.engine.worker.runs import Run
    from syncline.store.queue.claims import Claim

LONGEST_CURSOR = 2_048  # bytes; of a longer one only the digest is kept
SHORT_CURSOR = LONGEST_CURSOR // 4  # characters, which have at most so many bytes
INCREMENTAL = JobType.INCREMENTAL


def keep_trace(run: "Run", error: BaseException) -> None:
    """Keep the trace of the error that ends a run, without secrets."""
    with suppress(Exception):  # whatever the error's own code does, its job must be settled
        run.trace = short_trace(error, mask_for(run.claim.credentials))


def report_of(run: "Run") -> AttemptReport | None:
    """Return the report of a run that failed; None if it did not."""
    if not isinstance(run.ending, Raised):
        return None
    return AttemptReport(
        worker=f"{socket.gethostname()}:{os.getpid()}",
        milliseconds=round(1000 * (run.ended - run.began)),
        trace=run.trace,
        calls=_calls(run),
        call_count=0 if run.calls is None else run.calls.count,
        signals=run.stored_signals,
    )


def brought_by(run: "Run") -> str | None:
    """Return what a run brought that succeeded, as JSON; None if it brought nothing.

    The list holds calls, milliseconds, signals, and the cursor before and after, in short: every
    byte is written with the job, and most jobs of a busy installation pass here.
    """
    page, claim = run.ending, run.claim
    if not isinstance(page, Page) or page.is_empty:
        return None
    if run.committed_pages:
        before = run.cursor_before
    elif claim.cursor is None and claim.job_type == INCREMENTAL:  # nearly all of them
        before = claim.stored_cursor
    else:
        before = start_cursor(claim)
    after = page.next_cursor or claim.stored_cursor
    if (before and len(before) > SHORT_CURSOR) or (after and len(after) > SHORT_CURSOR):
        before, after = _short(before), _short(after)
    calls = 0 if run.calls is None else run.calls.count
    signals = run.stored_signals + len(page.kinds)
    took = int(1000 * (run.ended - run.began))
    return f"[{calls},{took},{signals},{before or 'null'},{after or 'null'}]"


def start_cursor(claim: "Claim") -> str | None:
    """Return the cursor that a run starts from, as JSON."""
    own = None if claim.cursor == "null" else claim.cursor
    stored: str | None = effective_cursor(claim.job_type, own, claim.stored_cursor)
    return stored


def _short(cursor: str | None) -> str | None:
    """Return a cursor, or its digest if it is long."""
    data = (cursor or "").encode()
    if len(data) <= LONGEST_CURSOR:
        return cursor
    return json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)})


def _calls(run: "Run") -> str:
    if run.calls is None:
        return "[]"
    calls = run.calls.shown()
    for call in calls:  # an address may have what Postgres cannot store
        call["method"] = storable_text(call["method"], 20)
        call["url"] = storable_text(call["url"], 500)
    return json.dumps(calls, ensure_ascii=False)
