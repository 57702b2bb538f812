"""The requests and the responses of connectors: the types that authors and hooks see."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from multidict import CIMultiDict

from syncline.errors import Permanent
from syncline.http.addresses import describe
from syncline.http.url import Url
from syncline.json_bounds import MAX_NODES, JsonBounds, TooComplex, check_json, parse_json
from syncline.offload import SMALL_BYTES, in_thread

LARGE_PARSES = threading.BoundedSemaphore(2)  # each may need 100 MB of memory
BLANKS = b" \t\r\n\xef\xbb\xbf"
CHARSET = re.compile(r"charset\s*+=\s*+[\"']?([\w.:-]{1,40})", re.IGNORECASE)
LINK = re.compile(r"<([^<>]*+)>([^<]*+)")
LINK_PARAMETER = re.compile(r";\s*+([\w*!#$&+.^`|~-]++)\s*+=\s*+(?:\"([^\"]*+)\"|([^\s;,\"]*+))")
LONGEST_LINKS = 65_536


class Headers(Mapping[str, str]):
    """The headers of a response: names in any case; several values are joined with commas."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._fields: CIMultiDict[str] = (
            fields if type(fields) is CIMultiDict else CIMultiDict(fields or ())
        )

    def __getitem__(self, name: str) -> str:
        values = self._fields.getall(name)
        return values[0] if len(values) == 1 else ", ".join(values)

    def get_list(self, name: str) -> list[str]:
        """Return each value of a header that was sent several times."""
        return self._fields.getall(name, [])

    def multi_items(self) -> list[tuple[str, str]]:
        """Return every header, in the order in which they were sent."""
        return list(self._fields.items())

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lower() for name in self._fields))

    def __len__(self) -> int:
        return len(set(self))

    def __repr__(self) -> str:
        return f"<Headers: {', '.join(self)}>"


class Request:
    """A request as it is about to be sent, with its credentials.

    The names in `headers` are in lower case. `content` is the whole body.
    """

    __slots__ = ("content", "headers", "method", "url")

    def __init__(
        self,
        method: str,
        url: str | Url,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> None:
        self.method = method
        self.url = Url(url) if isinstance(url, str) else url
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.content = content

    def __repr__(self) -> str:
        return f"<Request {describe(self.method, self.url)}>"


class Response:
    """A response whose body has been read.

    A large JSON document is parsed in a thread before the connector gets the response, and
    `json()` then returns the same value every time.
    """

    __slots__ = (
        "_is_parsed",
        "_refusal",
        "_request",
        "_value",
        "content",
        "headers",
        "max_json_values",
        "status_code",
    )

    def __init__(
        self,
        status_code: int,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        *,
        json: Any = None,
        request: Request | None = None,
    ) -> None:
        """Make a response; `json` is encoded as its content."""
        self.status_code = status_code
        self.headers = headers if isinstance(headers, Headers) else Headers(headers)
        self.content = content if json is None else encode_body(json)
        self.max_json_values = MAX_NODES
        self._request = request
        self._is_parsed = False
        self._value: Any = None
        self._refusal: ValueError | None = None

    @property
    def request(self) -> Request:
        """The request that was answered; after redirects, the last one."""
        if self._request is None:
            raise RuntimeError("this response answers no request")
        return self._request

    @property
    def url(self) -> Url:
        """The URL that answered; after redirects, the last one."""
        return self.request.url

    @property
    def encoding(self) -> str:
        """The encoding of the text: as the server says, or else UTF-8."""
        found = CHARSET.search(self.headers.get("content-type", "")[:1000])
        if found is not None:
            try:
                "".encode(found[1])
            except (LookupError, ValueError):
                return "utf-8"
            return found[1]
        return "utf-8"

    @property
    def text(self) -> str:
        """The body as text; bytes that are not text are replaced."""
        return self.content.decode(self.encoding, "replace")

    @property
    def links(self) -> dict[str, dict[str, str]]:
        """The links of the `Link` header by their `rel`, each with its `url`."""
        header = self.headers.get("link")
        return read_links(header) if header else {}

    def json(self, **kwargs: Any) -> Any:
        """Return the parsed body; raise `Permanent` if it is too large, ValueError if not JSON."""
        try:
            if self._refusal is not None:
                raise self._refusal
            if kwargs:
                check_json(self.content, self._bounds)
                return json.loads(self.content, **kwargs)
            return self._value if self._is_parsed else parse_json(self.content, self._bounds)
        except TooComplex as error:
            described = describe(self.request.method, self.request.url)
            setting = " (http.max_json_values)" if error.bound == "nodes" else ""
            raise Permanent(f"{described} answered with JSON that has {error}{setting}") from None

    async def prepare(self) -> None:
        """Parse a large document in a thread, so that `json()` need not."""
        content = self.content
        if len(content) <= SMALL_BYTES or content[:100].lstrip(BLANKS)[:1] not in (b"[", b"{"):
            return
        try:
            self._value = await in_thread(_parse_large, content, self._bounds)
        except ValueError as error:
            self._refusal = error
        self._is_parsed = True

    @property
    def _bounds(self) -> JsonBounds:
        return JsonBounds(nodes=self.max_json_values)

    def __repr__(self) -> str:
        return f"<Response {self.status_code}>"


# The bytes stay as they are: recordings know a request by the digest of its body.
_encode_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_body(value: Any) -> bytes:
    """Return a value as the JSON body of a request."""
    return _encode_json(value).encode()


def read_links(header: str) -> dict[str, dict[str, str]]:
    """Return the links of a `Link` header by their `rel`."""
    links: dict[str, dict[str, str]] = {}
    for target, rest in LINK.findall(header[:LONGEST_LINKS]):
        link = {"url": target}
        for name, quoted, plain in LINK_PARAMETER.findall(rest):
            link.setdefault(name.lower(), quoted or plain)
        links[link.get("rel") or target] = link
    return links


def _parse_large(content: bytes, bounds: JsonBounds) -> Any:
    with LARGE_PARSES:
        return parse_json(content, bounds)
