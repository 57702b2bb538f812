"""A small GitHub: its listings, links, versions and limits, as the real one answers them."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from support.httpserver import Reply, Seen, json_reply

TOKEN = "ghp_t0k3n-of-a-test"
START = datetime(2024, 5, 1, 12, tzinfo=UTC)


class GitHubDouble:
    """One repository, `acme/desk`; every change happens a second after the one before."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, dict[str, Any]]] = {
            "issues": {},
            "issues/comments": {},
            "pulls/comments": {},
            "commits": {},
        }
        self.replies: list[Reply] = []  # to be sent before anything else
        self.now = START

    def put(self, path: str, number: int, body: str, **more: Any) -> None:
        url = f"https://api.github.com/repos/acme/desk/{path}/{number}"
        record = {"id": number, "url": url, "html_url": "https://github.com/acme/desk", **more}
        state = {
            "title": f"No. {number}",
            "state": "open",
            "body": body,
            "updated_at": self._tick(),
        }
        self.records[path][str(number)] = record | state

    def commit(self, sha: str, *, days_ago: int = 0) -> None:
        at = self._tick() if not days_ago else _text(self.now - timedelta(days=days_ago))
        commit = {"message": sha, "committer": {"name": "Ada", "date": at}}
        self.records["commits"][sha] = {"sha": sha, "commit": commit}

    def __call__(self, seen: Seen) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_reply({"message": "Bad credentials"}, 401)
        path = seen.path.removeprefix("/repos/acme/desk/")
        if path not in self.records:
            return json_reply({"message": "Not Found"}, 404)
        if path == "commits" and not self.records[path]:
            return json_reply({"message": "Git Repository is empty."}, 409)
        return self._list(seen, path)

    def _list(self, seen: Seen, path: str) -> Reply:
        since = seen.query.get("since", "")
        found = [one for one in self.records[path].values() if _time(one) >= since]
        found.sort(key=_time, reverse=True)
        page, size = int(seen.query.get("page", 1)), int(seen.query.get("per_page", 30))
        part = found[(page - 1) * size : page * size]
        etag = f'W/"{hashlib.sha256(repr(part).encode()).hexdigest()}"'
        headers = {"etag": etag, "x-ratelimit-remaining": "4999", "x-ratelimit-reset": "1794750000"}
        if seen.headers.get("if-none-match") == etag:
            return Reply(304, headers=headers)
        if len(found) > page * size:
            query = {**seen.query, "page": str(page + 1)}
            address = f"http://{seen.headers['host']}{seen.path}?"
            address += "&".join(f"{name}={value}" for name, value in query.items())
            headers["link"] = f'<{address}>; rel="next"'
        return json_reply(part, 200, **headers)

    def _tick(self) -> str:
        self.now += timedelta(seconds=1)
        return _text(self.now)


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(record: dict[str, Any]) -> str:
    return str(record.get("updated_at") or record["commit"]["committer"]["date"])
