"""What an answer to a GET looks like on the wire: its `ETag`, 304 if it is unchanged, and gzip.

An answer is made before it is compared, so 304 saves the transfer and the parsing, not the query.
Only JSON of the API is compressed: no answer to a GET holds a secret, which compression could
reveal by its length.
"""

import gzip
import hashlib
import re

from fastapi import Request, Response

from syncline.offload import in_thread

MEDIA_TYPE = "application/json"
LEAST_BYTES = 1_000  # what is smaller fits into one packet anyway
FEW_BYTES = 64_000  # more is compressed in a thread, so that other requests do not wait
LEVEL = 5
TAG = re.compile(r'(?:W/)?"([^"]*)"')
NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)")


async def represent(request: Request, response: Response) -> Response:
    """Return the response as the client asks for it."""
    is_json = response.headers.get("content-type", "").startswith(MEDIA_TYPE)
    if response.status_code != 200 or not is_json or not hasattr(response, "body"):
        return response
    body = bytes(response.body)
    tag = _tag(body, response.headers.get("ETag"))
    if _is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers={"ETag": f'"{tag}"', "Vary": "Accept-Encoding"})
    response.headers["ETag"] = f'"{tag}"'
    response.headers["Vary"] = "Accept-Encoding"
    if len(body) >= LEAST_BYTES and _takes_gzip(request.headers.get("accept-encoding", "")):
        await _compress(response, body)
    return response


def _tag(body: bytes, version: str | None) -> str:
    """Return a digest of the body, after the version that `If-Match` compares, if there is one."""
    digest = hashlib.sha256(body).hexdigest()[:20]
    return digest if version is None else ".".join((version.strip('"'), digest))


def _is_known(tag: str, if_none_match: str) -> bool:
    return if_none_match.strip() == "*" or tag in TAG.findall(if_none_match)


def _takes_gzip(accepted: str) -> bool:
    return "gzip" in accepted and not NO_GZIP.search(accepted)


async def _compress(response: Response, body: bytes) -> None:
    def work() -> bytes:
        return gzip.compress(body, LEVEL, mtime=0)

    response.body = await in_thread(work) if len(body) > FEW_BYTES else work()
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    # The same content in other bytes: a strong tag would promise equal bytes.
    response.headers["ETag"] = f"W/{response.headers['ETag']}"
