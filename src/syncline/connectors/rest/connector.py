"""Any JSON API by configuration alone: where its records are, and how to find the next page."""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from syncline.connectors.config import ConfigurationReader
from syncline.connectors.rest.config import (
    Api,
    Pagination,
    Path,
    Since,
    authentication_of,
    secret_parameters,
)
from syncline.connectors.timestamps import earlier, later, latest, read_instant
from syncline.errors import Permanent, Transient
from syncline.http import HttpClient, Response, Validators
from syncline.http.pagination import find_in, parse
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.sdk.connector import Connector
from syncline.sdk.json_text import quick_encoder

SMALL_ANSWER = 8_000_000  # bytes
ENCODER = json.JSONEncoder(sort_keys=True)
write_sorted = quick_encoder(ENCODER)
IDENTITIES = (str, int)
FORGOTTEN = {400, 404, 410}  # the usual statuses for a page token that expired


class Rest(Connector):
    """Syncs the records of one listing, each version of a record once.

    The cursor has `since`, the largest value of the cursor field in a listing that was read to the
    end. While a listing is being read, `next` is its next page and `seen` its largest value.
    """

    provider = "rest"
    title = "Any JSON API"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "query")
    config_schema = Api

    def __init__(self) -> None:
        self._configurations = ConfigurationReader(Api)

    async def sync(
        self, connection: Connection, cursor: Any
    ) -> SyncResult | AsyncIterator[SyncResult]:
        """Return the only page, which is what most runs find, or stream the pages of a listing."""
        api = self._configurations.read(connection.config)
        place = Place.from_json(cursor)
        async with self._open(connection, api) as listing:
            answer = await listing.first_page(place)
            if answer is None:  # its page token expired: start the listing again
                place = replace(place, seen=None, next=None)
                page = Page(SyncResult(next_cursor=place.to_json(), has_more=True), place)
            elif answer.status_code == 304:
                return SyncResult()
            else:
                page = await listing.read(answer, place)
                if page.place.next is None:
                    return page.result
        return self._stream(connection, api, page)

    async def _stream(
        self, connection: Connection, api: Api, page: "Page"
    ) -> AsyncIterator[SyncResult]:
        """Yield a page and those that follow it."""
        async with self._open(connection, api) as listing:
            yield page.result
            while page.result.has_more:
                page = await listing.read(await listing.ask(page.place), page.place)
                yield page.result

    @asynccontextmanager
    async def _open(self, connection: Connection, api: Api) -> AsyncIterator["Listing"]:
        authentication = authentication_of(api.auth, connection.credentials)
        secret = secret_parameters(api.auth, connection.credentials)
        async with self.http(
            connection, base_url=api.base_url, headers=api.headers, authentication=authentication
        ) as http:
            yield Listing(http, api, secret)


class Parsed(NamedTuple):
    """An answer and its document, which is parsed once."""

    response: Response
    document: Any


class Page(NamedTuple):
    result: SyncResult
    place: "Place"  # after it


@dataclass(frozen=True, slots=True)
class Listing:
    """The pages of one API, as one connection reads them."""

    http: HttpClient
    api: Api
    secret: Iterable[str]  # parameters that a stored cursor must not have

    async def first_page(self, place: "Place") -> Response | None:
        """Return the page at a place, or None if its page token expired."""
        if place.next is None:
            return await self.ask(place)
        answer = await self.ask(place, accept=FORGOTTEN)
        return None if answer.status_code in FORGOTTEN else answer

    async def ask(self, place: "Place", accept: Collection[int] = ()) -> Response:
        api, following = self.api, place.next or {}
        if url := following.get("url"):
            return await self.http.get(url, accept=accept)
        params: dict[str, Any] = {**api.params, **_page_size(api.pagination)}
        since = place.since if place.since is not None or not api.since else api.since.start
        if api.since and since is not None:
            params[api.since.parameter] = earlier(since, api.since.overlap_seconds)
        params |= following.get("params", {})
        return await self.http.get(
            api.path, params=params, accept=accept, validators=place.validators
        )

    async def read(self, answer: Response, place: "Place") -> Page:
        size = len(answer.content)
        return await in_thread_if_large(size, _read_page, self.api, answer, place, self.secret)


@dataclass(frozen=True, slots=True)
class Place:
    """The cursor."""

    since: Any = None
    seen: Any = None
    next: Mapping[str, Any] | None = None  # the next page: its `url`, or its `params`
    validators: Validators = field(default_factory=Validators)  # used while `since` stays the same

    @classmethod
    def from_json(cls, cursor: Any) -> "Place":
        fields = cursor if isinstance(cursor, dict) else {}
        following = fields.get("next")
        if (cursor is not None and cursor is not fields) or not isinstance(following, dict | None):
            raise Permanent('cursor: expected {"since": a value, "next": an object}')
        validators = Validators.from_json(fields.get("validators"))
        return cls(fields.get("since"), fields.get("seen"), following, validators)

    def to_json(self) -> dict[str, Any]:
        named = {"since": self.since, "seen": self.seen, "next": self.next}
        kept = {name: value for name, value in named.items() if value is not None}
        validators = self.validators.to_json()
        return kept | ({"validators": validators} if validators else {})


def _read_page(api: Api, answer: Response, place: Place, secret: Iterable[str]) -> Page:
    document = parse(answer)
    records = find_in(document, api.records)
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        kind = (
            Permanent if place == Place() else Transient
        )  # a known API may be down for maintenance
        raise kind(f"config.records: the answer has no list of objects at {api.records!r}")
    is_first = place.next is None
    following = _next_page(
        api.pagination, Parsed(answer, document), place.next, len(records), secret
    )
    if following is not None and following == place.next:
        raise Permanent("config.pagination: the next page of a page is itself")
    seen = _largest(api.since, records, place.seen, is_first=is_first)
    is_small = len(answer.content) <= SMALL_ANSWER
    where = api.time or (api.since.field if api.since else None)
    signals = [_signal(api, record, where, is_small=is_small) for record in records]
    if following is not None:
        return _page(signals, Place(place.since, seen, following))
    since = later(place.since, seen)
    is_known = is_first and since == place.since  # the next request is the same
    return _page(
        signals, Place(since, validators=Validators.of(answer) if is_known else Validators())
    )


def _page(signals: list[Signal], place: Place) -> Page:
    return Page(SyncResult(signals, place.to_json(), has_more=place.next is not None), place)


def _next_page(
    pagination: Pagination,
    answer: Parsed,
    current: Mapping[str, Any] | None,
    count: int,
    secret: Iterable[str],
) -> dict[str, Any] | None:
    parameter = pagination.parameter or pagination.style
    if pagination.style in ("page", "offset"):
        is_offset = pagination.style == "offset"
        number = int(
            (current or {}).get("params", {}).get(parameter, 0 if is_offset else pagination.first)
        )
        is_last = count < (pagination.size or 1)
        return None if is_last else {"params": {parameter: number + (count if is_offset else 1)}}
    following = _next_place(pagination, answer)
    if following in (None, "", False):
        return None
    if pagination.style == "token":
        return {"params": {parameter: following}}
    url = answer.response.url.join(str(following))
    for name in secret:  # cursors are stored unencrypted
        url = url.without_param(name)
    return {"url": str(url)}


def _next_place(pagination: Pagination, answer: Parsed) -> Any:
    """Return where a page says the next one is."""
    if pagination.style == "link":
        return answer.response.links.get("next", {}).get("url")
    if pagination.header:
        return answer.response.headers.get(pagination.header)
    return find_in(answer.document, pagination.field) if pagination.field else None


def _page_size(pagination: Pagination) -> dict[str, Any]:
    usual = {"offset": "limit", "page": "per_page"}.get(pagination.style)
    name = pagination.size_parameter or usual
    return {name: pagination.size} if name and pagination.size else {}


def _largest(since: Since | None, records: list[Any], seen: Any, *, is_first: bool) -> Any:
    """Return the largest value of the cursor field up to which everything has been listed.

    In descending order the first page has it: records that change while later pages are read get
    larger values, and may move past those pages.
    """
    if since is None or (since.order == "descending" and not is_first):
        return seen
    return latest(seen, (_at(record, since.field) for record in records))


def _signal(api: Api, record: Mapping[str, Any], where: Path | None, *, is_small: bool) -> Signal:
    identity = _at(record, api.id)
    if not isinstance(identity, IDENTITIES) or identity == "":
        raise Permanent(f"config.id: a record has no id at {api.id!r}")
    if where is None:
        raise Permanent("config.time: expected the path of each record's time, or config.since")
    version = _at(record, api.version) if api.version else _digest(record, is_small=is_small)
    return Signal(
        kind=api.kind if api.tombstones is None else _kind(api, record),
        occurred_at=_instant(record, where, identity),
        payload=record,
        dedupe_key=f"{identity}@{version}",
    )


def _kind(api: Api, record: Mapping[str, Any]) -> str:
    graves = api.tombstones
    if graves is None or _at(record, graves.field) != graves.value:
        return api.kind
    return graves.kind or f"{api.kind}_deleted"


def _instant(record: Mapping[str, Any], where: Path, identity: Any) -> datetime:
    instant = read_instant(_at(record, where))
    if instant is None:
        raise Permanent(f"config.time: the record {identity} has no time at {where!r}")
    return instant


def _at(value: Any, path: Path) -> Any:
    if "." not in path:  # most paths
        return value.get(path) if isinstance(value, dict) else None
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _digest(record: Mapping[str, Any], *, is_small: bool) -> str:
    if is_small:
        return sha256(write_sorted(record).encode()).hexdigest()[:16]
    # In pieces, because one call on a huge record would block the interpreter.
    digest = sha256()
    for piece in ENCODER.iterencode(record):
        digest.update(piece.encode())
    return digest.hexdigest()[:16]
