"""`/v1/signals`: what connectors brought, page by page, as a stream, or as it comes in."""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from syncline.api.access import CanRead, Person, ScopedRoute
from syncline.api.answers import engine_of, problems
from syncline.api.asked import FollowQuery, SignalExport, SignalFilters, SignalQuery, TailQuery
from syncline.api.schemas import FollowedOut, SignalOut, SignalPage
from syncline.clock import monotonic, pause
from syncline.engine.app import Engine
from syncline.model import StoredSignal
from syncline.store.following import START, Followed, Position
from syncline.store.signal_pages import SignalFilter

router = APIRouter(prefix="/v1/signals", tags=["signals"], route_class=ScopedRoute)
NDJSON = "application/x-ndjson"
ROWS_A_CHUNK = 500
LOOK_EVERY_SECONDS = 0.5
SAY_POSITION_EVERY_SECONDS = 10
SIGNAL = TypeAdapter(StoredSignal)
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON: {}}, "description": "A JSON object a line."}
}


@router.get("", responses=problems())
async def list_signals(
    request: Request, person: CanRead, asked: Annotated[SignalQuery, Query()]
) -> SignalPage:
    """Return a page of signals by when they were stored."""
    found = await engine_of(request).signals.page(
        _between(person, asked),
        after=asked.page,
        newest_first=asked.order == "newest",
        limit=asked.limit,
    )
    items = [_shown(signal) for signal in found.items]
    return SignalPage(items=items, next_page=found.next_page)


@router.get("/stream", responses={**STREAM, **problems()}, response_class=StreamingResponse)
async def stream_signals(
    request: Request, person: CanRead, asked: Annotated[SignalExport, Query()]
) -> StreamingResponse:
    """Return all signals as NDJSON, the oldest first."""
    signals, wanted = engine_of(request).signals, _between(person, asked)
    first = await signals.page(wanted, newest_first=False, limit=ROWS_A_CHUNK)

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while True:
            yield b"".join(SIGNAL.dump_json(signal) + b"\n" for signal in page.items)
            if page.next_page is None:
                return
            page = await signals.page(
                wanted, after=page.next_page, newest_first=False, limit=ROWS_A_CHUNK
            )

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/follow", responses=problems())
async def follow_signals(
    request: Request, person: CanRead, asked: Annotated[FollowQuery, Query()]
) -> FollowedOut:
    """Return what was stored after a position: each signal once, none left out."""
    engine, wanted = engine_of(request), _filter(person, asked)
    position = await _position(engine, asked.position)
    deadline = monotonic() + asked.wait
    while True:
        found = await engine.signals.follow(wanted, position=position, limit=asked.limit)
        position = found.position
        is_over = monotonic() >= deadline or engine.is_draining
        if found.signals or (found.is_caught_up and is_over):
            items = [_shown(signal) for signal in found.signals]
            shown = _write(found.position)
            return FollowedOut(items=items, position=shown, is_caught_up=found.is_caught_up)
        if found.is_caught_up:
            await pause(LOOK_EVERY_SECONDS)


@router.get("/tail", responses={**STREAM, **problems()}, response_class=StreamingResponse)
async def tail_signals(
    request: Request, person: CanRead, asked: Annotated[TailQuery, Query()]
) -> StreamingResponse:
    """Return signals as NDJSON as they come in, until the client leaves.

    A line is `{"signal": …}` or `{"position": …}`, from which a new request goes on.
    """
    engine, wanted = engine_of(request), _filter(person, asked)
    start = await _position(engine, asked.position)
    first = await engine.signals.follow(wanted, position=start, limit=ROWS_A_CHUNK)
    gate = request.app.state.gate

    async def lines() -> AsyncIterator[bytes]:
        found, told_at = first, monotonic()
        yield _lines(found)
        while not engine.is_draining and not await request.is_disconnected():
            if found.is_caught_up:
                await pause(LOOK_EVERY_SECONDS)
            found = await engine.signals.follow(wanted, position=found.position, limit=ROWS_A_CHUNK)
            if found.signals or monotonic() - told_at > SAY_POSITION_EVERY_SECONDS:
                await gate.identify(request)  # a key that was revoked meanwhile ends it
                told_at = monotonic()
                yield _lines(found)

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/{signal_id}", responses=problems(404))
async def get_signal(request: Request, person: CanRead, signal_id: UUID) -> SignalOut:
    """Return a signal."""
    return _shown(await engine_of(request).signals.get(signal_id, tenant_id=person.tenant_id))


def _filter(person: Person, asked: SignalFilters) -> SignalFilter:
    return SignalFilter(
        tenant_id=person.sees(asked.tenant),
        connection_id=asked.connection,
        provider_slug=asked.provider,
        kind=asked.kind,
    )


def _between(person: Person, asked: SignalExport) -> SignalFilter:
    wanted = _filter(person, asked)
    return SignalFilter(
        wanted.tenant_id,
        wanted.connection_id,
        wanted.provider_slug,
        wanted.kind,
        since=asked.since,
        until=asked.until,
    )


def _shown(signal: StoredSignal) -> SignalOut:
    return SignalOut(**{name: getattr(signal, name) for name in SignalOut.model_fields})


def _lines(found: Followed) -> bytes:
    rows = [b'{"signal":' + SIGNAL.dump_json(signal) + b"}\n" for signal in found.signals]
    return b"".join(rows) + b'{"position":"' + _write(found.position).encode() + b'"}\n'


def _write(position: Position) -> str:
    return f"{position.transaction}.{position.signal_id.hex}"


async def _position(engine: Engine, text: str) -> Position:
    if text == "start":
        return START
    if text == "now":
        return await engine.signals.position()
    transaction, _, id_ = text.partition(".")
    if not (transaction.isascii() and transaction.isdigit() and len(transaction) < 20):
        raise ValueError("position is none that was given out; `start` and `now` will do too")
    try:
        return Position(int(transaction), UUID(id_))
    except ValueError:
        raise ValueError("position is none that was given out") from None
