"""A connector that makes every kind of request, for recordings."""

from typing import Any

from syncline import Connection, Connector, SyncResult
from syncline.http import Validators

URL = "http://127.0.0.1:8765/api/v1"
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "", {}),
    ("GET", "a b/ü~(x)'*!;", {}),
    ("GET", "tickets", {"params": {"since": "2026-01-01T00:00:00+02:00", "q": "a b&c/d?e=ü"}}),
    ("GET", "tickets?sig=a%2Cb,c&x=1", {}),
    ("GET", "/root?sig=a%2Cb,c&x=1", {"params": {"x": [1, True, None, 2.5], "y": ""}}),
    ("GET", f'{URL}/whole/../path?%zz="<>`{{|}}', {}),
    ("POST", "json", {"json": {"ü": [1, 2.5, None, True, "\u2028"], "b": {}}}),
    ("POST", "form", {"data": {"a": "b c", "list": ["1", "ü"], "flag": True}}),
    ("PUT", "raw", {"content": "text ü"}),
    ("GET", "known", {"validators": Validators('"v1"', "Thu, 01 Jan 2026 00:00:00 GMT")}),
    ("GET", "packed", {}),
    ("GET", "moved", {}),
]


class Archive(Connector):
    """Its cursor has the status and the text of each answer."""

    provider = "archive"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        answers = []
        async with self.http(connection, base_url=URL) as http:
            for method, url, options in REQUESTS:
                answer = await http.request(method, url, **options)
                answers.append([answer.status_code, answer.text])
        return SyncResult(next_cursor={"answers": answers})
