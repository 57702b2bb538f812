"""`/v1/signals`: list signals, export them as a stream, or follow them as they come in."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from syncline.api.auth import CanRead, Principal, ScopedRoute, engine_of
from syncline.api.requests import FollowQuery, SignalExport, SignalFilters, SignalQuery, TailQuery
from syncline.api.responses import FollowedOut, SignalOut, SignalPage, problems
from syncline.app import Engine
from syncline.clock import monotonic, pause
from syncline.errors import Invalid
from syncline.model import START, FollowBatch, Position, SignalFilter, StoredSignal
from syncline.services.signals import SignalFilterFields

router = APIRouter(prefix="/v1/signals", tags=["signals"], route_class=ScopedRoute)
NDJSON = "application/x-ndjson"
ROWS_A_CHUNK = 500
POLL_SECONDS = 0.5
POSITION_EVERY_SECONDS = 10
SIGNAL = TypeAdapter(StoredSignal)
# The server start in microseconds, the transaction, the signal. Version 0.1 wrote no start.
POSITION = re.compile(r"(?:([0-9]{1,17})\.)?([0-9]{1,19})\.([0-9a-f]{32})")
BEGINNING, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON: {}}, "description": "One JSON object per line."}
}


@router.get("", responses=problems(404))
async def list_signals(
    request: Request, principal: CanRead, query: Annotated[SignalQuery, Query()]
) -> SignalPage:
    """List signals by the time they were stored.

    No index helps `occurred_since` and `occurred_until`: name a connection, a tenant or a time of
    storage too where there are many signals.
    """
    found = await engine_of(request).signals.list(
        **_export_fields(principal, query),
        after=query.page,
        newest_first=query.order == "newest",
        payloads=query.payload,
        limit=query.limit,
    )
    items = [_shown(signal) for signal in found]
    return SignalPage(items=items, next_page=found.next_page)


@router.get("/stream", responses={**STREAM, **problems(404)}, response_class=StreamingResponse)
async def stream_signals(
    request: Request, principal: CanRead, query: Annotated[SignalExport, Query()]
) -> StreamingResponse:
    """Return all signals as NDJSON, oldest first."""
    signals, wanted = engine_of(request).signals, _export_fields(principal, query)
    first = await signals.list(**wanted, limit=ROWS_A_CHUNK, payloads=query.payload)

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while True:
            yield b"".join(SIGNAL.dump_json(signal) + b"\n" for signal in page)
            if page.next_page is None:
                return
            page = await signals.list(
                **wanted, after=page.next_page, limit=ROWS_A_CHUNK, payloads=query.payload
            )

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/follow", responses=problems(410))
async def follow_signals(
    request: Request, principal: CanRead, query: Annotated[FollowQuery, Query()]
) -> FollowedOut:
    """Return the signals after a position, each exactly once."""
    engine, wanted = engine_of(request), SignalFilter(**_fields(principal, query))
    position = await _position(engine, query.position)
    search_seconds = request.app.state.timeouts.search_seconds
    began, server_changed = monotonic(), False
    while True:
        found = await engine.signals.follow(wanted, position=position, limit=query.limit)
        position = found.position
        server_changed |= found.server_changed
        # Skipped signals are not read again: when the time is up, the position says how far it got.
        patience = query.wait if found.is_caught_up else max(query.wait, search_seconds)
        if found.signals or engine.is_draining or monotonic() - began >= patience:
            return FollowedOut(
                items=[_shown(signal) for signal in found.signals],
                position=_write(position),
                is_caught_up=found.is_caught_up,
                server_changed=server_changed,
            )
        if found.is_caught_up:
            await pause(POLL_SECONDS)


@router.get("/tail", responses={**STREAM, **problems(410)}, response_class=StreamingResponse)
async def tail_signals(
    request: Request, principal: CanRead, query: Annotated[TailQuery, Query()]
) -> StreamingResponse:
    """Return signals as NDJSON as they come in, until the client disconnects.

    A line is `{"signal": …}` or `{"position": …}`; a new request continues from a position. The
    position line also has `"server_changed": true` if that happened since the last one.
    """
    engine, wanted = engine_of(request), SignalFilter(**_fields(principal, query))
    start = await _position(engine, query.position)
    first = await engine.signals.follow(wanted, position=start, limit=ROWS_A_CHUNK)
    authenticator = request.app.state.authenticator

    async def lines() -> AsyncIterator[bytes]:
        found, sent_at = first, monotonic()
        server_changed = False
        yield _lines(found, found.server_changed)
        while not engine.is_draining and not await request.is_disconnected():
            if found.is_caught_up:
                await pause(POLL_SECONDS)
            found = await engine.signals.follow(wanted, position=found.position, limit=ROWS_A_CHUNK)
            server_changed |= found.server_changed
            if found.signals or monotonic() - sent_at > POSITION_EVERY_SECONDS:
                await authenticator.identify(request)  # ends the stream if the key was revoked
                yield _lines(found, server_changed)
                sent_at, server_changed = monotonic(), False

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/{signal_id}", responses=problems(404))
async def get_signal(request: Request, principal: CanRead, signal_id: UUID) -> SignalOut:
    """Return a signal."""
    return _shown(await engine_of(request).signals.get(signal_id, tenant_id=principal.tenant_id))


def _fields(principal: Principal, query: SignalFilters) -> SignalFilterFields:
    return {
        "tenant_id": principal.sees(query.tenant),
        "connection_id": query.connection,
        "provider_slug": query.provider,
        "kind": query.kind,
        "job_id": query.job_id,
    }


def _export_fields(principal: Principal, query: SignalExport) -> SignalFilterFields:
    return {
        **_fields(principal, query),
        "since": query.since,
        "until": query.until,
        "occurred_since": query.occurred_since,
        "occurred_until": query.occurred_until,
    }


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
