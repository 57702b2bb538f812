"""Record HTTP requests to a file, without secrets, and replay them from it."""

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.errors import Invalid
from syncline.http.environment import Send
from syncline.http.failures import ReadError
from syncline.http.messages import Request, Response
from syncline.private_files import completed_file
from syncline.redaction import Scrubber, mask_fields, secrets_in

VERSION = 1
# The body is recorded complete and decoded; cookies are secrets.
NOT_KEPT = {"content-length", "transfer-encoding", "set-cookie", "connection"}
# Headers that affect the response, in addition to the URL and the body.
DECIDING = ("if-none-match", "if-modified-since", "range")


class UnrecordedCall(AssertionError):
    """The recording does not have this request."""


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded request and its response."""

    method: str
    url: str
    deciding: Mapping[str, str]
    body_digest: str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    error: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.method, self.url, tuple(sorted(self.deciding.items())), self.body_digest


class Masker:
    """Masks the secrets of a connection in what is recorded."""

    def __init__(self, credentials: Any = None) -> None:
        self._scrub = Scrubber(secrets_in(credentials, besides=frozenset()))

    def text(self, text: str) -> str:
        return self._scrub.known(text)

    def url(self, url: str) -> str:
        return self._scrub(url)

    def body(self, content: bytes) -> bytes:
        """Return a body without secrets and otherwise unchanged, so that it can be replayed."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        return mask_fields(self._scrub.known(text)).encode()


class Recorder:
    """Passes requests on and records them with their responses; an interceptor of requests."""

    def __init__(self, calls: list[Call], masker: Masker) -> None:
        self._calls, self._masker = calls, masker

    async def __call__(self, request: Request, send: Send) -> Response:
        described = _describe(request, self._masker)
        try:
            response = await send(request)
        except Exception as error:
            self._calls.append(Call(**described, error=type(error).__name__))
            raise
        described |= {"status": response.status_code, "headers": self._headers(response)}
        self._calls.append(Call(**described, content=self._masker.body(response.content)))
        return response

    def _headers(self, response: Response) -> dict[str, str]:
        kept = (name for name in response.headers if name not in NOT_KEPT)
        return {name: self._masker.text(response.headers[name]) for name in kept}


class Player:
    """Answers from a recording; equal requests get their responses in turn, then the last again.

    It is an interceptor of requests, and sends none.
    """

    def __init__(self, calls: list[Call], masker: Masker, source: str) -> None:
        self._answers: dict[Any, list[Call]] = defaultdict(list)
        for call in calls:
            self._answers[call.key].append(call)
        self._masker, self._source = masker, source

    async def __call__(self, request: Request, send: Send) -> Response:  # noqa: ARG002
        wanted = Call(**_describe(request, self._masker))
        answers = self._answers.get(wanted.key)
        if not answers:
            raise UnrecordedCall(
                f"{wanted.method} {wanted.url} is not in {self._source};"
                " record again with `syncline connector run … --record`"
            )
        call = answers.pop(0) if len(answers) > 1 else answers[0]
        if call.status is None:
            raise ReadError(f"recorded: {call.error}")
        return Response(call.status, call.headers, call.content)


def save_calls(path: Path, calls: list[Call]) -> None:
    """Write calls to a file that people can read, compare and commit."""
    entries = [_entry(call) for call in calls]
    text = json.dumps({"version": VERSION, "calls": entries}, indent=2, ensure_ascii=False)
    with completed_file(path) as part:
        part.write_text(text + "\n", "utf-8")


def load_calls(path: Path) -> list[Call]:
    """Return the calls of a file, or raise an error that says what is wrong with it."""
    try:
        recorded = json.loads(path.read_text("utf-8"))
        if recorded["version"] != VERSION:
            raise ValueError(f"version {recorded['version']!r}, expected {VERSION}")
        return [_call(entry) for entry in recorded["calls"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(str(path), f"is not a recording: {type(error).__name__}: {error}") from None


def _entry(call: Call) -> dict[str, Any]:
    entry: dict[str, Any] = {"method": call.method, "url": call.url}
    if call.deciding:
        entry["deciding"] = dict(call.deciding)
    if call.body_digest:
        entry["body_digest"] = call.body_digest
    if call.status is None:
        return entry | {"error": call.error}
    entry |= {"status": call.status, "headers": dict(call.headers)}
    try:
        return entry | {"text": call.content.decode()}
    except UnicodeDecodeError:
        return entry | {"base64": base64.b64encode(call.content).decode()}


def _call(entry: dict[str, Any]) -> Call:
    coded = entry.get("base64")
    return Call(
        method=entry["method"],
        url=entry["url"],
        deciding=entry.get("deciding", {}),
        body_digest=entry.get("body_digest", ""),
        status=entry.get("status"),
        headers=entry.get("headers", {}),
        content=base64.b64decode(coded) if coded else entry.get("text", "").encode(),
        error=entry.get("error"),
    )


def _describe(request: Request, masker: Masker) -> dict[str, Any]:
    """Return what identifies a request, without its secrets."""
    content = request.content
    return {
        "method": request.method,
        "url": masker.url(str(request.url)),
        "deciding": {n: request.headers[n] for n in DECIDING if n in request.headers},
        "body_digest": hashlib.sha256(masker.body(content)).hexdigest()[:16] if content else "",
    }
