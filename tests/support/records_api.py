"""A small JSON API with every usual kind of pagination, whose records a test changes."""

from typing import Any

from support.httpserver import Reply, Seen, json_reply

TOKEN = "t0k3n-of-the-records"


class RecordsApi:
    """Records by their id; each change gets the next number as its time."""

    def __init__(self, count: int, size: int = 2) -> None:
        self.records: dict[int, dict[str, Any]] = {}
        self.size = size
        self.changed_at = 1_700_000_000
        self.replies: list[Reply] = []  # to be sent before anything else
        for number in range(1, count + 1):
            self.put(number, f"note {number}")

    def put(self, number: int, text: str) -> None:
        self.changed_at += 1
        self.records[number] = {"id": number, "text": text, "at": self.changed_at}

    def delete(self, number: int) -> None:
        self.changed_at += 1
        self.records[number] = {"id": number, "gone": True, "at": self.changed_at}

    def held(self) -> dict[int, str]:
        """Return what the records say, without the deleted ones."""
        return {n: record["text"] for n, record in self.records.items() if "text" in record}

    def __call__(self, seen: Seen) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        if TOKEN not in (seen.headers.get("authorization", "") + seen.query.get("key", "")):
            return json_reply({"message": "who are you?"}, 401)
        etag = f'"{self.changed_at}"'
        if seen.headers.get("if-none-match") == etag:
            return Reply(304, headers={"etag": etag})
        return self._list(seen, etag)

    def _list(self, seen: Seen, etag: str) -> Reply:
        query, style = seen.query, seen.path.rpartition("/")[2]
        since = int(query.get("since", 0))
        found = sorted(
            (
                one
                for one in self.records.values()
                if one["at"] > since and (since or "text" in one)
            ),
            key=lambda one: (one["at"], one["id"]),
            reverse=query.get("sort") == "-at",
        )
        start, size = self._start(style, query), int(query.get("limit", self.size))
        page, rest = found[start : start + size], found[start + size :]
        body: Any = {"data": {"notes": page}, "meta": {}}
        headers = {"etag": etag}
        if rest:
            url = f"/api/{style}?since={since}&key={query.get('key', '')}&after={start + size}"
            headers |= {"link": f'<{url}>; rel="next"', "next-page": url}
            body["meta"] = {"next": url, "token": str(start + size)}
        return json_reply(body, 200, **headers)

    def _start(self, style: str, query: dict[str, str]) -> int:
        if style == "page":
            return (int(query.get("page", 1)) - 1) * int(query.get("per_page", self.size))
        return int(query.get("after") or query.get("token") or query.get("offset") or 0)
