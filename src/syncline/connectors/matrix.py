"""The events of Matrix rooms: what a sync returns, and the gaps that it leaves."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import Field

from syncline.connectors.config import Configuration, read_configuration
from syncline.connectors.timestamps import read_instant
from syncline.errors import Permanent, Transient
from syncline.http import HttpClient, Response
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.sdk.connector import Connector

CLIENT = "_matrix/client/v3"
NOTHING_ELSE: dict[str, Any] = {"presence": {"types": []}, "account_data": {"types": []}}
PAYLOAD = ("event_id", "sender", "type", "state_key", "content", "redacts", "origin_server_ts")


class Homeserver(Configuration):
    """Which rooms of which server to read."""

    base_url: str = Field(pattern="^https?://")
    rooms: list[str] | None = None
    page_size: int = Field(default=100, ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a room's timeline that a sync left out, backwards from one token to another."""

    room: str
    start: str
    end: str | None = None

    def to_json(self) -> dict[str, Any]:
        named = {"room": self.room, "from": self.start, "to": self.end}
        return {name: value for name, value in named.items() if value is not None}


class Matrix(Connector):
    """Syncs the timelines of the rooms that the account has joined.

    The cursor has `since`, the token of the last sync, and the `gaps` that it left. The gaps are
    read before the next sync, newest events first.
    """

    provider = "matrix"
    title = "Matrix"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "query")
    config_schema = Homeserver

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        config = read_configuration(Homeserver, connection.config)
        since, gaps = _read_cursor(cursor)
        async with self.http(connection, base_url=config.base_url) as http:
            if not gaps:
                answer = await http.get(f"{CLIENT}/sync", params=_params(config, since))
                body, size = _object(answer), len(answer.content)
                signals, gaps = await in_thread_if_large(size, _read_sync, body, since)
                since = _token(body)
                yield SyncResult(signals, _cursor(since, gaps), has_more=bool(gaps))
            while gaps:
                signals, rest = await _read_gap(http, config, gaps[0])
                gaps = ([rest] if rest else []) + gaps[1:]
                yield SyncResult(signals, _cursor(since, gaps), has_more=bool(gaps))


def _params(config: Homeserver, since: str | None) -> dict[str, str]:
    room: dict[str, Any] = {
        "timeline": {"limit": config.page_size},
        "state": {"types": []},
        "ephemeral": {"types": []},
        "account_data": {"types": []},
        "include_leave": True,
    }
    if config.rooms is not None:
        room["rooms"] = config.rooms
    chosen = json.dumps({"room": room, **NOTHING_ELSE}, separators=(",", ":"))
    return {"timeout": "0", "filter": chosen} | ({"since": since} if since else {})


def _read_sync(body: Mapping[str, Any], since: str | None) -> tuple[list[Signal], list[Gap]]:
    signals: list[Signal] = []
    gaps: list[Gap] = []
    rooms = body.get("rooms") or {}
    for name, room in [*_items(rooms.get("join")), *_items(rooms.get("leave"))]:
        timeline = room.get("timeline") or {}
        signals += _signals(name, timeline.get("events") or [])
        if timeline.get("limited") and timeline.get("prev_batch"):
            gaps.append(Gap(name, timeline["prev_batch"], since))
    return signals, gaps


async def _read_gap(
    http: HttpClient, config: Homeserver, gap: Gap
) -> tuple[list[Signal], Gap | None]:
    """Return a page of a gap, and the gap that remains."""
    params = {"dir": "b", "from": gap.start, "limit": str(config.page_size)}
    if gap.end:
        params["to"] = gap.end
    path = f"{CLIENT}/rooms/{quote(gap.room, safe='')}/messages"
    answer = await http.get(path, params=params, accept={403, 404})
    if answer.status_code != 200:  # the account left the room and may no longer read it
        return [], None
    body = _object(answer)
    chunk, end = body.get("chunk"), body.get("end")
    if not isinstance(chunk, list):
        raise Transient("the homeserver answered with messages without a chunk")
    is_over = not chunk or not end or end in (gap.start, gap.end)
    signals = await in_thread_if_large(len(answer.content), _signals, gap.room, chunk)
    return signals, None if is_over else Gap(gap.room, str(end), gap.end)


def _signals(room: str, events: Iterable[Any]) -> list[Signal]:
    signals = []
    for event in events:
        occurred_at = read_instant(event.get("origin_server_ts"))
        if not event.get("event_id") or not event.get("type") or occurred_at is None:
            raise Transient("the homeserver answered with an event without its id, type or time")
        # A redacted event has no content, but it is the same event.
        payload = {name: event[name] for name in PAYLOAD if name in event}
        signals.append(
            Signal(
                str(event["type"])[:255],
                occurred_at,
                {"room_id": room, **payload},
                dedupe_key=str(event["event_id"]),
            )
        )
    return signals


def _object(answer: Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        raise Transient("the homeserver answered with something that is not JSON") from None
    if not isinstance(body, dict):
        raise Transient("the homeserver answered with something that is not an object")
    return body


def _token(body: Mapping[str, Any]) -> str:
    token = body.get("next_batch")
    if not isinstance(token, str) or not token:
        raise Transient("the homeserver answered with a sync without next_batch")
    return token


def _items(rooms: Any) -> Iterable[tuple[str, Any]]:
    return sorted(rooms.items()) if isinstance(rooms, dict) else ()


def _cursor(since: str | None, gaps: list[Gap]) -> dict[str, Any]:
    return {"since": since} | ({"gaps": [gap.to_json() for gap in gaps]} if gaps else {})


def _read_cursor(cursor: Any) -> tuple[str | None, list[Gap]]:
    if cursor is None:
        return None, []
    try:
        since = cursor["since"]
        gaps = [Gap(gap["room"], gap["from"], gap.get("to")) for gap in cursor.get("gaps", [])]
    except (TypeError, KeyError, AttributeError):
        raise Permanent('cursor: expected {"since": a token, "gaps": a list}') from None
    return since, gaps
