"""The rules for every connector when requests fail: each check injects faults."""

import asyncio
import base64
import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NoReturn

from syncline.errors import RateLimited, SyncError, Transient, Unauthorized
from syncline.http.environment import Send
from syncline.http.failures import ConnectError, ReadError
from syncline.http.messages import Request, Response
from syncline.policy.backoff import read_hint
from syncline.testing.checks import Skipped, Subject, require

FAULTED_CALLS = 3  # the first requests of a walk; later ones are mostly alike
RETRY_AFTER = 77
CANCEL_SECONDS = 2.0  # for a cancelled run to clean up
TURNS = (1, 2, 5, 20)  # of the event loop, before a run is cancelled
CANARY = "c4n4ry-7f3a9e"
# Plain, and as it begins in a header of basic authentication.
CANARIES = (CANARY, base64.b64encode(CANARY.encode()).decode()[:16])
NO_CALLS = "it makes no request through self.http()"

Answer = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of a provider, and the error that the connector must raise."""

    name: str
    answer: Answer
    expected: type[SyncError]


class Calls:
    """Passes the first requests of a walk on, and answers all later ones with a fault."""

    def __init__(self, passed_on: int, answer: Answer | None) -> None:
        self.passed_on, self.answer = passed_on, answer
        self.made = 0
        self.faulted = asyncio.Event()

    async def intercept(self, request: Request, send: Send) -> Response:
        self.made += 1
        if self.made <= self.passed_on:
            return await send(request)
        self.faulted.set()
        if self.answer is None:  # a provider that never answers
            await asyncio.Event().wait()
            raise AssertionError("unreachable")
        return self.answer(request)


async def errors_are_mapped(subject: Subject) -> None:
    """401, 429, 5xx, timeouts and lost connections raise the right errors."""
    for fault in FAULTS:
        for error in await _raised_by(subject, fault):
            said = f"after {fault.name} it raised {type(error).__name__}"
            require(isinstance(error, fault.expected), f"{said}, not {fault.expected.__name__}")
            if isinstance(error, RateLimited):
                hint = error.retry_after_seconds
                require(
                    _keeps_hint(hint), f"{said} with the hint {hint}; Retry-After was {RETRY_AFTER}"
                )


def _keeps_hint(hint: Any) -> bool:
    with contextlib.suppress(ValueError):
        return (read_hint(hint) or timedelta()) >= timedelta(seconds=RETRY_AFTER)
    return False


async def nonsense_is_an_error(subject: Subject) -> None:
    """A response of another kind, such as a login page, raises an error."""
    await _raised_by(subject, NONSENSE)


async def errors_hold_no_secrets(subject: Subject) -> None:
    """Errors have no secrets, even if the provider repeats everything it was sent."""
    marked = replace(subject, credentials=_marked(subject.credentials))
    for fault in FAULTS:
        for error in await _raised_by(marked, fault):
            texts = (str(error), repr(error), repr(getattr(error, "details", None)))
            leaked = any(canary in text for text in texts for canary in CANARIES)
            require(not leaked, f"after {fault.name}, {type(error).__name__} contains a credential")


async def can_be_cancelled(subject: Subject) -> None:
    """A cancelled run ends at once and lets CancelledError through."""
    if not _is_async(subject.make()):
        raise Skipped("a plain `def` runs in a thread, which cannot be cancelled")
    for turns in TURNS:
        task = asyncio.ensure_future(subject.pages())
        for _ in range(turns):
            await asyncio.wait([task], timeout=0)
        await _end(task)
    hanging = Calls(0, None)
    task = asyncio.ensure_future(subject.pages(subject.connector(hanging.intercept)))
    reached = asyncio.ensure_future(hanging.faulted.wait())
    await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await _end(task)


async def _end(task: "asyncio.Future[Any]") -> None:
    if task.done():
        await task
        return
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=CANCEL_SECONDS)
    require(
        bool(done), f"after cancellation it was still running after {CANCEL_SECONDS:.0f} seconds"
    )
    require(task.cancelled(), "it swallowed CancelledError and continued")


async def _raised_by(subject: Subject, fault: Fault) -> list[BaseException]:
    """Return what the connector raises if the fault hits each of the first requests."""
    errors: list[BaseException] = []
    for passed_on in range(FAULTED_CALLS):
        calls = Calls(passed_on, fault.answer)
        try:
            await subject.pages(subject.connector(calls.intercept))
        except Exception as error:
            errors.append(error)
            continue
        if not calls.made:
            raise Skipped(NO_CALLS)
        if calls.made <= passed_on:
            break  # the walk has no more requests
        require(False, f"{fault.name} at request {passed_on + 1} was taken for a good response")
    return errors


def _is_async(connector: Any) -> bool:
    sync = connector.sync
    return inspect.iscoroutinefunction(sync) or inspect.isasyncgenfunction(sync)


def _marked(credentials: Any) -> Any:
    """Return credentials of the same shape, with a canary for every text."""
    if credentials is None:
        return {"token": CANARY}
    if isinstance(credentials, dict):
        return {name: _marked(value) for name, value in credentials.items()}
    if isinstance(credentials, list):
        return [_marked(value) for value in credentials]
    return CANARY if isinstance(credentials, str) else credentials


def _status(status: int, **headers: str) -> Answer:
    """Answer with a status, and with a message that repeats the whole request."""

    def answer(request: Request) -> Response:
        sent = f"{request.method} {request.url} {request.headers}"
        kind = {"content-type": "application/json"}
        return Response(status, headers | kind, json={"message": f"refused: {sent}"})

    return answer


def _login_page(_: Request) -> Response:
    page = b"<!doctype html><title>Sign in</title><form></form>"
    return Response(200, {"content-type": "text/html"}, page)


def _raises(error: type[OSError]) -> Answer:
    def answer(request: Request) -> NoReturn:
        raise error(f"{request.url} {request.headers}")

    return answer


NONSENSE = Fault("a page of HTML", _login_page, SyncError)
FAULTS = (
    Fault("401", _status(401), Unauthorized),
    Fault("429", _status(429, **{"retry-after": str(RETRY_AFTER)}), RateLimited),
    Fault("500", _status(500), Transient),
    Fault("502", _status(502), Transient),
    Fault("a timeout", _raises(TimeoutError), Transient),
    Fault("a refused connection", _raises(ConnectError), Transient),
    Fault("a connection lost during the response", _raises(ReadError), Transient),
)
