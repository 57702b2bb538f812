"""Where a redirect leads, and what of a request may go along."""

from httpx2 import URL, InvalidURL, Request, Response

from syncline.errors import Permanent
from syncline.http.addresses import origin_of

REDIRECTS = {301, 302, 303, 307, 308}
KEEPING_METHOD = {307, 308}
# All that another origin learns of a request; anything else may be a secret.
HARMLESS_HEADERS = {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}
MADE_ANEW = {"host", "content-length", "transfer-encoding"}


def is_redirect(answer: Response) -> bool:
    return answer.status_code in REDIRECTS and "location" in answer.headers


def next_request(request: Request, answer: Response, *, asked: str) -> Request:
    """Return the request that a redirect asks for, without secrets where the origin changes."""
    url = _target(request.url, answer.headers["location"], asked)
    method = request.method
    keeps_body = answer.status_code in KEEPING_METHOD
    if not keeps_body and method not in ("GET", "HEAD"):
        method = "GET"
    same_origin = origin_of(url) == origin_of(request.url)
    if keeps_body and not same_origin and method not in ("GET", "HEAD"):
        raise Permanent(f"{asked} is redirected to another origin, which must not get its body")
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if (same_origin or name.lower() in HARMLESS_HEADERS)
        and name.lower() not in MADE_ANEW
        and (keeps_body or name.lower() != "content-type")
    ]
    return Request(
        method,
        url,
        headers=headers,
        content=request.content if keeps_body and request.content else None,
        extensions=request.extensions,
    )


def _target(origin: URL, location: str, asked: str) -> URL:
    try:
        target = origin.join(location)
    except (InvalidURL, ValueError):
        raise Permanent(f"{asked} is redirected to what is no address") from None
    # User information in a redirect is the server's idea of credentials, not ours.
    return target.copy_with(fragment=None, userinfo=b"")
