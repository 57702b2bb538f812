"""Where a redirect leads, and which parts of the request follow it."""

from httpx2 import URL, InvalidURL, Request, Response

from syncline.errors import Permanent
from syncline.http.addresses import origin_of

REDIRECTS = {301, 302, 303, 307, 308}
KEEPING_METHOD = {307, 308}
# All that another origin may see of a request; anything else may be a secret.
HARMLESS_HEADERS = {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}
MADE_ANEW = {"host", "content-length", "transfer-encoding"}


def is_redirect(response: Response) -> bool:
    return response.status_code in REDIRECTS and "location" in response.headers


def next_request(request: Request, response: Response, *, described: str) -> Request:
    """Return the request that follows a redirect, without secrets if the origin changes."""
    url = _target(request.url, response.headers["location"], described)
    method = request.method
    keeps_body = response.status_code in KEEPING_METHOD
    if not keeps_body and method not in ("GET", "HEAD"):
        method = "GET"
    same_origin = origin_of(url) == origin_of(request.url)
    if keeps_body and not same_origin and method not in ("GET", "HEAD"):
        raise Permanent(
            f"{described} was redirected to another origin, which must not get the request body"
        )
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


def _target(origin: URL, location: str, described: str) -> URL:
    try:
        target = origin.join(location)
    except (InvalidURL, ValueError):
        raise Permanent(f"{described} was redirected to a URL that cannot be parsed") from None
    # Never use the credentials that a server puts into a redirect.
    return target.copy_with(fragment=None, userinfo=b"")
