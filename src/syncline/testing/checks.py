"""The rules for every connector: each check takes a subject and fails with a sentence."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from syncline.errors import ContractError
from syncline.http.environment import Intercept
from syncline.model import Connection, Signal
from syncline.sdk.connector import Connector
from syncline.testing.trial import (
    TrialPage,
    chain,
    one_run,
    prepare_trial,
    trial_connection,
    walk,
)

COMPARED_PAGES = 5  # mistakes show on the first pages, and each page costs requests


@dataclass(frozen=True)
class Subject:
    """A connector to check, and its config and credentials."""

    make: Callable[[], Connector]
    config: dict[str, Any] = field(default_factory=dict)
    credentials: Any = None
    max_pages: int = 100
    answers: Callable[[], Intercept] | None = None  # replays a recording instead of real servers

    def connector(self, around: Intercept | None = None) -> Connector:
        """Return a new instance; `around` gets its requests first."""
        inner = self.answers() if self.answers else None
        return prepare_trial(self.make(), chain(around, inner))

    def connection(self, connector: Connector) -> Connection:
        return trial_connection(
            connector, copy.deepcopy(self.config), copy.deepcopy(self.credentials)
        )

    async def pages(self, connector: Connector | None = None) -> list[TrialPage]:
        """Return every page, from the first to the last."""
        connector = connector or self.connector()
        pages: list[TrialPage] = []
        seen = [json.dumps(None)]
        async with aclosing(walk(connector, self.connection(connector))) as found:
            async for page in found:
                pages.append(page)
                seen.append(json.dumps(page.next_cursor, sort_keys=True))
                if page.has_more:
                    self._refuse_endless(seen)
        return pages

    def _refuse_endless(self, seen: list[str]) -> None:
        *before, latest = seen
        if latest in before:
            raise ContractError(f"next_cursor: {latest[:200]} came twice although there was more")
        if len(before) >= self.max_pages:
            raise ContractError(f"there is still more after {self.max_pages} pages")

    async def first_page(self, cursor: Any) -> TrialPage | None:
        """Return the page that a new instance has for a cursor."""
        connector = self.connector()
        async with aclosing(one_run(connector, self.connection(connector), cursor)) as pages:
            return await anext(pages, None)


async def pages_end(subject: Subject) -> None:
    """Pages end: `has_more` becomes false, and every page can be stored."""
    pages = await subject.pages()
    require(bool(pages), "it returned no page; return SyncResult() for an empty one")


async def cursor_advances(subject: Subject) -> None:
    """The cursor is JSON and advances: none comes twice while there are more pages."""
    await subject.pages()  # it checks each cursor


async def same_cursor_same_page(subject: Subject) -> None:
    """The same cursor gives the same page, also from another instance."""
    for page in (await subject.pages())[:COMPARED_PAGES]:
        again = await subject.first_page(page.cursor)
        where = f"from the cursor {json.dumps(page.cursor)[:200]}"
        require(
            again is not None, f"{where} there was a page the first time, and none the second time"
        )
        assert again is not None
        lost = _difference(page.signals, again.signals)
        require(not lost, f"{where} {lost} was missing the second time")
        if page.has_more:  # the last page may have grown
            added = _difference(again.signals, page.signals)
            require(not added, f"{where} {added} came only the second time")
            same = again.next_cursor == page.next_cursor
            require(same, f"{where} next_cursor differs the second time")


async def goes_on_from_the_end(subject: Subject) -> None:
    """A run from the last cursor works, and returns no known signal under another key."""
    pages = await subject.pages()
    again = await subject.first_page(pages[-1].next_cursor)
    known = {_content(signal): signal.dedupe_key for page in pages for signal in page.signals}
    for signal in again.signals if again else ():
        key = known.get(_content(signal), signal.dedupe_key)
        require(key == signal.dedupe_key, f"{_name(signal)} came again; its key was {key!r} before")


async def times_have_zones(subject: Subject) -> None:
    """Times have zones: each `occurred_at` has an offset from UTC."""
    for page in await subject.pages():
        for signal in page.signals:
            aware = signal.occurred_at.utcoffset() is not None
            require(aware, f"{_name(signal)}: occurred_at has no time zone")


async def dedupe_keys_are_stable(subject: Subject) -> None:
    """Every signal has a dedupe key, which is unique and the same on every walk."""
    first = [signal for page in await subject.pages() for signal in page.signals]
    by_key: dict[str | None, Signal] = {}
    for signal in first:
        require(
            signal.dedupe_key is not None,
            f"{_name(signal)} has no dedupe_key: a repeated run would store it twice",
        )
        other = by_key.setdefault(signal.dedupe_key, signal)
        require(
            _content(other) == _content(signal),
            f"two different signals share the key {signal.dedupe_key!r}: the second is lost",
        )
    again = {signal.dedupe_key for page in await subject.pages() for signal in page.signals}
    changed = [key for key in by_key if key not in again]
    require(not changed, f"the key {next(iter(changed), None)!r} was different on the second walk")


async def keeps_its_hands_off(subject: Subject) -> None:
    """The connection and the cursor stay unchanged."""
    connector = subject.connector()
    connection = subject.connection(connector)
    before = copy.deepcopy((connection.config, connection.metadata, connection.credentials))
    async with aclosing(one_run(connector, connection, None)) as pages:
        await anext(pages, None)
    after = (connection.config, connection.metadata, connection.credentials)
    require(before == after, "sync() changed the connection that it was given")


async def serves_many_at_once(subject: Subject) -> None:
    """One instance serves several connections at once, without mixing them up."""
    alone = await subject.pages()
    connector = subject.connector()
    walks = await asyncio.gather(*(subject.pages(connector) for _ in range(3)))
    for pages in walks:
        lost = _difference(_signals(alone), _signals(pages))
        require(not lost, f"with three runs at once, one instance lost {lost}")


class Skipped(Exception):
    """The check does not apply; the message says why."""


def require(kept: bool, message: str) -> None:
    if not kept:
        raise AssertionError(message)


def _signals(pages: Iterable[TrialPage]) -> list[Signal]:
    return [signal for page in pages for signal in page.signals]


def _difference(left: Iterable[Signal], right: Iterable[Signal]) -> str:
    """Return the name of the first signal that is only on the left, or an empty text."""
    known = {(signal.dedupe_key, _content(signal)) for signal in right}
    missing = (s for s in left if (s.dedupe_key, _content(s)) not in known)
    return next((_name(signal) for signal in missing), "")


def _content(signal: Signal) -> tuple[str, Any, str]:
    payload = json.dumps(dict(signal.payload), sort_keys=True)
    return signal.kind, signal.occurred_at, payload


def _name(signal: Signal) -> str:
    return f"the {signal.kind} {signal.dedupe_key or 'without a key'} of {signal.occurred_at}"
