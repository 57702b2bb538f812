"""Issues, pull requests, comments and commits of chosen GitHub repositories."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from syncline.connectors.config import Configuration, read_configuration
from syncline.connectors.timestamps import earlier, later, read_instant
from syncline.errors import Permanent, RateLimited, SyncError, Transient
from syncline.http import HttpClient, Response, Validators
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.sdk.connector import Connector
from syncline.sdk.limits import Limit

HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
NEWEST_FIRST = {"sort": "updated", "direction": "desc"}
SECONDARY_LIMIT_SECONDS = 60  # GitHub's minimum if it names no time
FORGOTTEN = {400, 404, 410, 422}
NOTHING_THERE = {409, 410}  # no commits, or issues are switched off

Repository = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
Subject = Literal["issues", "pull_requests", "comments", "commits"]
EVERYTHING: tuple[Subject, ...] = ("issues", "pull_requests", "comments", "commits")


class Repositories(Configuration):
    """Which repositories to read, and what of them."""

    repositories: list[Repository] = Field(min_length=1, max_length=200)
    include: list[Subject] = Field(default_factory=lambda: list(EVERYTHING), min_length=1)
    base_url: str = Field(default="https://api.github.com", pattern="^https?://")
    page_size: int = Field(default=100, ge=1, le=100)
    commit_overlap_days: int = Field(default=7, ge=0, le=365)


@dataclass(frozen=True, slots=True)
class Listing:
    """One listing of one repository; its name is its key in the cursor."""

    repository: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    overlap: timedelta = timedelta()

    @property
    def name(self) -> str:
        return f"{self.repository}/{self.path}"


class GitHub(Connector):
    """Syncs repositories listing by listing, newest first.

    A record that is updated while the pages are read moves to the front and pushes others back, so
    none is skipped. The cursor has, for each listing, the newest time that was read to the end
    (`since`) and the validators that make the next response a 304. `at` is the page to read next.
    """

    provider = "github"
    title = "GitHub"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "query")
    config_schema = Repositories
    # Of each token. A run may make a fifth of the hour's requests at once: most runs make few, and
    # need not wait. Reading costs one point a request. GitHub also allows a hundred requests at
    # once; a run of ours makes one after the other.
    limits = (
        Limit("github:{connection}", calls=5000, per="1h", burst=1000, is_reported=True),
        Limit("github-minute:{connection}", calls=900, per="1m", burst=100),
    )

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        config = read_configuration(Repositories, connection.config)
        place = Place.from_json(cursor)
        async with self.http(
            connection, base_url=config.base_url, headers=HEADERS, errors=_errors
        ) as http:
            left = _listings(config)
            names = [listing.name for listing in left]
            if place.name in names:
                left = left[names.index(place.name) :]
            else:
                place = Place(place.done)
            stored: Place | None = None
            async for signals, following in _read_all(http, config, left, place):
                before = (place.done, place.next)
                is_news = bool(signals) or (following.done, following.next) != before
                place = following
                if is_news:
                    stored = place
                    yield SyncResult(signals, place.to_json(), has_more=place.next is not None)
            if stored != place:  # the last listings had nothing new
                last = place.to_json()
                yield SyncResult(next_cursor=None if last == cursor else last)


@dataclass(frozen=True, slots=True)
class Place:
    """The cursor: what was read of each listing, and which page is next."""

    done: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    next: str | None = None
    seen: str | None = None

    @classmethod
    def from_json(cls, cursor: Any) -> "Place":
        fields = {} if cursor is None else cursor
        done = fields.get("done", {}) if isinstance(fields, dict) else None
        at = fields.get("at", {}) if isinstance(fields, dict) else None
        if not isinstance(done, dict) or not isinstance(at, dict):
            raise Permanent('cursor: expected {"done": an object, "at": an object}')
        return cls(done, at.get("name"), at.get("next"), at.get("seen"))

    def to_json(self) -> dict[str, Any]:
        at = {"name": self.name, "next": self.next, "seen": self.seen}
        kept = {name: value for name, value in at.items() if value is not None}
        return {"done": dict(self.done)} | ({"at": kept} if kept else {})


def _listings(config: Repositories) -> list[Listing]:
    found = []
    days = timedelta(days=config.commit_overlap_days)
    for name in dict.fromkeys(config.repositories):
        if {"issues", "pull_requests"} & set(config.include):
            found.append(Listing(name, "issues", {"state": "all", **NEWEST_FIRST}))
        if "comments" in config.include:
            found.append(Listing(name, "issues/comments", NEWEST_FIRST))
            found.append(Listing(name, "pulls/comments", NEWEST_FIRST))
        if "commits" in config.include:
            found.append(Listing(name, "commits", overlap=days))
    return found


async def _read_all(
    http: HttpClient, config: Repositories, listings: list[Listing], place: Place
) -> AsyncIterator[tuple[list[Signal], Place]]:
    """Yield the pages of all listings, each with the place after it."""
    for listing, after in zip(listings, [*listings[1:], None], strict=True):
        async for signals, following in _read(http, config, listing, place):
            place = following
            if place.next is None and place.name is None and after is not None:
                place = replace(place, name=after.name)
            yield signals, place


async def _read(
    http: HttpClient, config: Repositories, listing: Listing, place: Place
) -> AsyncIterator[tuple[list[Signal], Place]]:
    """Yield the pages of a listing, each with the place after it; the last place marks it done."""
    known = place.done.get(listing.name) or {}
    answer = await _resumed(http, place)
    if answer is None:
        if place.next:  # GitHub no longer has the page: start the listing again
            place = Place(place.done, listing.name)
            yield [], place
        answer = await _first_page(http, config, listing, known)
        if answer.status_code == 304 or answer.status_code in NOTHING_THERE:
            yield [], Place(place.done)
            return
        newest = await in_thread_if_large(len(answer.content), _newest, listing, answer)
        place = Place(place.done, listing.name, seen=later(known.get("since"), newest))
    is_first = place.next is None
    while link := answer.links.get("next", {}).get("url"):
        following = str(answer.url.join(link))
        if following == place.next:
            raise Transient("GitHub's pages lead in a circle")
        place = replace(place, next=following)
        yield await _signals_of(config, listing, answer), place
        is_first = False
        answer = await http.get(following)
    now = {"since": place.seen} if place.seen else {}
    if is_first and place.seen == known.get("since"):  # the next request is the same
        now |= Validators.of(answer).to_json()
    yield await _signals_of(config, listing, answer), Place({**place.done, listing.name: now})


async def _resumed(http: HttpClient, place: Place) -> Response | None:
    """Return the page where a run ended early, or None."""
    if place.next is None:
        return None
    answer = await http.get(place.next, accept=FORGOTTEN)
    return None if answer.status_code in FORGOTTEN else answer


async def _first_page(
    http: HttpClient, config: Repositories, listing: Listing, known: Mapping[str, Any]
) -> Response:
    params = {**listing.params, "per_page": str(config.page_size)}
    if since := known.get("since"):
        params["since"] = earlier(since, listing.overlap.total_seconds())
    return await http.get(
        f"repos/{listing.repository}/{listing.path}",
        params=params,
        validators=Validators.from_json(known),
        accept=NOTHING_THERE,
    )


def _errors(answer: Response) -> SyncError | None:
    """Recognise the secondary limit, which may come without a header."""
    is_secondary = answer.status_code in (403, 429) and b"secondary rate limit" in answer.content
    is_exhausted = answer.headers.get("x-ratelimit-remaining") == "0"  # then the reset counts
    if not is_secondary or is_exhausted or "retry-after" in answer.headers:
        return None
    text = "GitHub's secondary rate limit is exceeded"
    return RateLimited(text, retry_after_seconds=SECONDARY_LIMIT_SECONDS)


def _records(answer: Response) -> list[dict[str, Any]]:
    try:
        found = answer.json()
    except ValueError:
        raise Transient("GitHub answered with a page that is not JSON") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Transient("GitHub answered with a page that is not a list of objects")
    return found


def _newest(listing: Listing, answer: Response) -> str | None:
    return max((_time(listing, one) for one in _records(answer)), default=None)


async def _signals_of(config: Repositories, listing: Listing, answer: Response) -> list[Signal]:
    return await in_thread_if_large(len(answer.content), _signals, config, listing, answer)


def _signals(config: Repositories, listing: Listing, answer: Response) -> list[Signal]:
    unwanted = {"issue", "pull_request"} - {name.removesuffix("s") for name in config.include}
    signals = (_signal(listing, record) for record in _records(answer))
    return [signal for signal in signals if signal.kind not in unwanted]


def _signal(listing: Listing, record: Mapping[str, Any]) -> Signal:
    kind = _kind(listing, record)
    time = _time(listing, record)
    occurred_at = read_instant(time)
    identity = record.get("sha") or record.get("id")
    if occurred_at is None or identity is None:
        raise Transient(f"GitHub answered with a {kind} without an id or a time")
    version = "" if kind == "commit" else f"@{time}#{_digest(record)}"
    return Signal(
        kind,
        occurred_at,
        {"repository": listing.repository, **_without_addresses(record)},
        dedupe_key=f"{listing.repository}/{kind}/{identity}{version}",
    )


def _kind(listing: Listing, record: Mapping[str, Any]) -> str:
    if listing.path == "issues":
        return "pull_request" if "pull_request" in record else "issue"
    names = {"issues/comments": "issue_comment", "pulls/comments": "review_comment"}
    return names.get(listing.path, "commit")


def _time(listing: Listing, record: Mapping[str, Any]) -> str:
    if listing.path == "commits":
        record = (record.get("commit") or {}).get("committer") or {}
    return str(record.get("date") or record.get("updated_at") or "")


def _digest(record: Mapping[str, Any]) -> str:
    """Return a digest that tells apart two edits in the same second."""
    said = repr([record.get(name) for name in ("state", "title", "body")])
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def _without_addresses(value: Any) -> Any:
    """Return a record without the API's own URLs, which are more than half of it."""
    if isinstance(value, dict):
        kept = (n for n in value if n == "html_url" or not (n == "url" or n.endswith("_url")))
        return {name: _without_addresses(value[name]) for name in kept}
    return [_without_addresses(one) for one in value] if isinstance(value, list) else value
