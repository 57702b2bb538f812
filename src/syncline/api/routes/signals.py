"""`/v1/signals`: what connectors brought, page by page, as a stream, or as it comes in."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from syncline.api.auth import CanRead, Principal, ScopedRoute
from syncline.api.idempotency import engine_of, problems
from syncline.api.requests import FollowQuery, SignalExport, SignalFilters, SignalQuery, TailQuery
from syncline.api.responses import FollowedOut, SignalOut, SignalPage
from syncline.app import Engine
from syncline.clock import monotonic, pause
from syncline.errors import Invalid
from syncline.model import START, FollowBatch, Position, SignalFilter, StoredSignal
from syncline.services.signals import SignalFilterFields

router = APIRouter(prefix="/v1/signals", tags=["signals"], route_class=ScopedRoute)
NDJSON = "application/x-ndjson"
ROWS_A_CHUNK = 500
LOOK_EVERY_SECONDS = 0.5
LOOK_FOR_SECONDS = 2  # at least, while there is more to look at
SAY_POSITION_EVERY_SECONDS = 10
SIGNAL = TypeAdapter(StoredSignal)
# Version 0.1 gave out positions without the start of the server, in microseconds, before the rest.
POSITION = re.compile(r"(?:([0-9]{1,17})\.)?([0-9]{1,19})\.([0-9a-f]{32})")
BEGINNING, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON: {}}, "description": "A JSON object a line."}
}


@router.get("", responses=problems())
async def list_signals(
    request: Request, principal: CanRead, asked: Annotated[SignalQuery, Query()]
) -> SignalPage:
    """Return a page of signals by when they were stored."""
    found = await engine_of(request).signals.list(
        **_between(principal, asked),
        after=asked.page,
        newest_first=asked.order == "newest",
        limit=asked.limit,
    )
    items = [_shown(signal) for signal in found]
    return SignalPage(items=items, next_page=found.next_page)


@router.get("/stream", responses={**STREAM, **problems()}, response_class=StreamingResponse)
async def stream_signals(
    request: Request, principal: CanRead, asked: Annotated[SignalExport, Query()]
) -> StreamingResponse:
    """Return all signals as NDJSON, the oldest first."""
    signals, wanted = engine_of(request).signals, _between(principal, asked)
    first = await signals.list(**wanted, limit=ROWS_A_CHUNK)

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while True:
            yield b"".join(SIGNAL.dump_json(signal) + b"\n" for signal in page)
            if page.next_page is None:
                return
            page = await signals.list(**wanted, after=page.next_page, limit=ROWS_A_CHUNK)

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/follow", responses=problems(410))
async def follow_signals(
    request: Request, principal: CanRead, asked: Annotated[FollowQuery, Query()]
) -> FollowedOut:
    """Return what was stored after a position: each signal once, none left out."""
    engine, wanted = engine_of(request), SignalFilter(**_fields(principal, asked))
    position = await _position(engine, asked.position)
    began, server_changed = monotonic(), False
    while True:
        found = await engine.signals.follow(wanted, position=position, limit=asked.limit)
        position = found.position
        server_changed |= found.server_changed
        # What a rare filter passes over is not looked at again: its time up, it says how far.
        patience = asked.wait if found.is_caught_up else max(asked.wait, LOOK_FOR_SECONDS)
        if found.signals or engine.is_draining or monotonic() - began >= patience:
            return FollowedOut(
                items=[_shown(signal) for signal in found.signals],
                position=_write(position),
                is_caught_up=found.is_caught_up,
                server_changed=server_changed,
            )
        if found.is_caught_up:
            await pause(LOOK_EVERY_SECONDS)


@router.get("/tail", responses={**STREAM, **problems(410)}, response_class=StreamingResponse)
async def tail_signals(
    request: Request, principal: CanRead, asked: Annotated[TailQuery, Query()]
) -> StreamingResponse:
    """Return signals as NDJSON as they come in, until the client leaves.

    A line is `{"signal": …}` or `{"position": …}`, from which a new request goes on; beside the
    position stands `"server_changed": true` where that is so since the last one.
    """
    engine, wanted = engine_of(request), SignalFilter(**_fields(principal, asked))
    start = await _position(engine, asked.position)
    first = await engine.signals.follow(wanted, position=start, limit=ROWS_A_CHUNK)
    authenticator = request.app.state.authenticator

    async def lines() -> AsyncIterator[bytes]:
        found, told_at = first, monotonic()
        server_changed = False
        yield _lines(found, found.server_changed)
        while not engine.is_draining and not await request.is_disconnected():
            if found.is_caught_up:
                await pause(LOOK_EVERY_SECONDS)
            found = await engine.signals.follow(wanted, position=found.position, limit=ROWS_A_CHUNK)
            server_changed |= found.server_changed
            if found.signals or monotonic() - told_at > SAY_POSITION_EVERY_SECONDS:
                await authenticator.identify(request)  # a key that was revoked meanwhile ends it
                yield _lines(found, server_changed)
                told_at, server_changed = monotonic(), False

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/{signal_id}", responses=problems(404))
async def get_signal(request: Request, principal: CanRead, signal_id: UUID) -> SignalOut:
    """Return a signal."""
    return _shown(await engine_of(request).signals.get(signal_id, tenant_id=principal.tenant_id))


def _fields(principal: Principal, asked: SignalFilters) -> SignalFilterFields:
    return {
        "tenant_id": principal.sees(asked.tenant),
        "connection_id": asked.connection,
        "provider_slug": asked.provider,
        "kind": asked.kind,
    }


def _between(principal: Principal, asked: SignalExport) -> SignalFilterFields:
    return {**_fields(principal, asked), "since": asked.since, "until": asked.until}


def _shown(signal: StoredSignal) -> SignalOut:
    return SignalOut(**{name: getattr(signal, name) for name in SignalOut.model_fields})


def _lines(found: FollowBatch, server_changed: bool) -> bytes:
    rows = [b'{"signal":' + SIGNAL.dump_json(signal) + b"}\n" for signal in found.signals]
    changed = b',"server_changed":true' if server_changed else b""
    position = b'{"position":"' + _write(found.position).encode() + b'"' + changed + b"}\n"
    return b"".join(rows) + position


def _write(position: Position) -> str:
    within = f"{position.transaction}.{position.signal_id.hex}"
    if position.server_start is None:
        return within
    return f"{(position.server_start - BEGINNING) // MICROSECOND}.{within}"


async def _position(engine: Engine, text: str) -> Position:
    if text == "start":
        return START
    if text == "now":
        return await engine.signals.position()
    given_out = POSITION.fullmatch(text)
    if given_out is None:
        raise Invalid("position", "is invalid; use one that this API returned, `start` or `now`")
    start, transaction, id_ = given_out.groups()
    started_at = BEGINNING + int(start) * MICROSECOND if start else None
    return Position(int(transaction), UUID(id_), started_at)
