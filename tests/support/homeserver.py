"""A small Matrix homeserver: timelines that are cut, and the messages that were left out."""

from typing import Any

from support.httpserver import Reply, Seen, json_reply

TOKEN = "syt_t0k3n-of-a-test"
ROOM = "!desk:example.org"
API = "/_matrix/client/v3"


class HomeserverDouble:
    """One room; a token is how many of its events lie before it."""

    def __init__(self, limit: int = 2) -> None:
        self.events: list[dict[str, Any]] = []
        self.limit = limit
        self.replies: list[Reply] = []

    def send(self, body: str, kind: str = "m.room.message", **more: Any) -> str:
        number = len(self.events)
        event = {
            "event_id": f"$event-{number}",
            "type": kind,
            "sender": "@ada:example.org",
            "origin_server_ts": 1_714_564_800_000 + number,
            "content": {"body": body},
            "unsigned": {"age": 1},
        }
        self.events.append(event | more)
        return str(event["event_id"])

    def __call__(self, seen: Seen) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_reply({"errcode": "M_UNKNOWN_TOKEN", "error": "Unknown token"}, 401)
        if seen.path == f"{API}/sync":
            return self._sync(_number(seen.query.get("since", "s0")))
        return self._messages(seen.query)

    def _sync(self, since: int) -> Reply:
        new = self.events[since:]
        body: dict[str, Any] = {"next_batch": f"s{len(self.events)}", "rooms": {}}
        if new:
            start = max(since, len(self.events) - self.limit)
            timeline = {
                "events": self.events[start:],
                "limited": start > since,
                "prev_batch": f"t{start}",
            }
            body["rooms"] = {"join": {ROOM: {"timeline": timeline}}}
        return json_reply(body)

    def _messages(self, query: dict[str, str]) -> Reply:
        end, least = _number(query["from"]), _number(query.get("to", "s0"))
        start = max(least, end - int(query["limit"]))
        chunk = self.events[start:end][::-1]
        more = {"end": f"t{start}"} if chunk else {}
        return json_reply({"chunk": chunk, "start": query["from"], **more})


def _number(token: str) -> int:
    return int(token[1:])
