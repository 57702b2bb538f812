"""Run a connector by hand, page after page, without an engine and without a database."""

import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from uuid import UUID

from syncline.engine.worker.threads import Threads
from syncline.errors import ContractError
from syncline.http import HttpEnvironment
from syncline.http.environment import Intercept, Send
from syncline.http.messages import Request, Response
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector
from syncline.sdk.page import read_page
from syncline.settings import ExecutorSettings

LIMITS = ExecutorSettings().page_limits
TRIAL_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class TrialPage:
    """A checked page, with the cursor before it."""

    cursor: Any
    signals: tuple[Signal, ...]
    next_cursor: Any
    has_more: bool


def trial_connection(
    connector: Connector, config: Mapping[str, Any] | None = None, credentials: Any = None
) -> Connection:
    """Return a connection that is in no database."""
    return Connection(
        id=TRIAL_ID,
        tenant_id="trial",
        provider_slug=connector.provider,
        external_id="trial",
        status="active",
        config=dict(config or {}),
        metadata={},
        credentials=credentials,
    )


def prepare_trial(connector: Connector, intercept: Intercept | None = None) -> Connector:
    """Configure a connector to run by hand; it may reach this machine.

    `intercept` gets its HTTP requests.
    """
    connector.configure(None)
    connector.http_environment = HttpEnvironment(allow_private=True, intercept=intercept)
    return connector


def chain(outer: Intercept | None, inner: Intercept | None) -> Intercept | None:
    """Return both interceptors as one, the outer around the inner."""
    if outer is None or inner is None:
        return outer or inner

    async def both(request: Request, send: Send) -> Response:
        return await outer(request, lambda passed_on: inner(passed_on, send))

    return both


async def take_pages(
    connector: Connector,
    config: Mapping[str, Any] | None = None,
    *,
    credentials: Any = None,
    cursor: Any = None,
) -> list[TrialPage]:
    """Return all pages after a cursor, each checked as the engine checks it."""
    connection = trial_connection(connector, config, credentials)
    return [page async for page in walk(connector, connection, cursor)]


async def walk(
    connector: Connector, connection: Connection, cursor: Any = None
) -> AsyncGenerator[TrialPage, None]:
    """Yield page after page, run after run, until a page has no more."""
    more_waiting = True
    while more_waiting:
        more_waiting = False
        async with aclosing(one_run(connector, connection, cursor)) as pages:
            async for page in pages:
                cursor, more_waiting = page.next_cursor, page.has_more
                yield page


async def one_run(
    connector: Connector, connection: Connection, cursor: Any = None
) -> AsyncGenerator[TrialPage, None]:
    """Yield the pages of one run: one page, or all pages of a streaming connector."""
    async with aclosing(_results(connector, connection, _as_stored(cursor))) as results:
        async for result in results:
            page = _checked(result, cursor)
            yield page
            cursor = page.next_cursor


async def _results(
    connector: Connector, connection: Connection, cursor: Any
) -> AsyncGenerator[Any, None]:
    if inspect.iscoroutinefunction(connector.sync) or inspect.isasyncgenfunction(connector.sync):
        answer: Any = connector.sync(connection, cursor)
    else:  # a plain function may block, so it runs in a thread, as in the engine
        answer = await Threads(lambda: None).run(lambda: connector.sync(connection, cursor))
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, AsyncIterator):
        try:
            async for result in answer:
                yield result
        finally:
            if isinstance(answer, AsyncGenerator):
                await answer.aclose()
    else:
        yield answer


def _checked(result: Any, cursor: Any) -> TrialPage:
    """Return the page with its signals, or raise the error that the engine would raise."""
    if isinstance(result, SyncResult) and _is_series(result.signals):
        result = replace(result, signals=tuple(islice(result.signals, LIMITS.page_signals + 1)))
    page = read_page(result, cursor=cursor, limits=LIMITS)
    next_cursor = cursor if page.next_cursor is None else json.loads(page.next_cursor)
    if page.next_cursor is not None and _as_stored(result.next_cursor) != result.next_cursor:
        raise ContractError("next_cursor: it changes when it is stored as JSON and read back")
    return TrialPage(cursor, result.signals, next_cursor, page.has_more)


def _is_series(signals: Any) -> bool:
    return isinstance(signals, Iterable) and not isinstance(signals, str | bytes | Mapping)


def _as_stored(cursor: Any) -> Any:
    """Return a cursor as the database returns it, which shares no lists with the original."""
    return json.loads(json.dumps(cursor))
