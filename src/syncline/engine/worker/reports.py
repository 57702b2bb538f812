"""What is kept of a run beside its page: the report of an attempt that failed."""

import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from syncline.engine.secrets.vault import mask_for
from syncline.engine.worker.traces import short_trace
from syncline.policy.outcome import Raised, storable_text
from syncline.store.data.attempts import AttemptReport

if TYPE_CHECKING:
    from syncline.engine.worker.runs import Run


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
        call_count=run.call_count,
        signals=run.stored_signals,
    )


def _calls(run: "Run") -> str:
    if not run.call_count:
        return "[]"
    calls = run.call_log.shown()
    for call in calls:  # an address may have what Postgres cannot store
        call["method"] = storable_text(call["method"], 20)
        call["url"] = storable_text(call["url"], 500)
    return json.dumps(calls, ensure_ascii=False)
