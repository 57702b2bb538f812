"""Where a redirect leads, and which parts of the request follow it."""

from syncline.errors import Permanent
from syncline.http.addresses import describe
from syncline.http.messages import Request, Response
from syncline.http.url import Url

REDIRECTS = {301, 302, 303, 307, 308}
KEEPING_METHOD = {307, 308}
# All that another origin may see of a request; anything else may be a secret.
HARMLESS_HEADERS = {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}


def is_redirect(response: Response) -> bool:
    return response.status_code in REDIRECTS and "location" in response.headers


def next_request(request: Request, response: Response, *, first: Request) -> Request:
    """Return the request that follows a redirect, without secrets if the origin changes."""
    described = describe(first.method, first.url)
    url = _target(request.url, response.headers["location"], described)
    method = request.method
    keeps_body = response.status_code in KEEPING_METHOD
    if not keeps_body and method not in ("GET", "HEAD"):
        method = "GET"
    same_origin = url.origin == request.url.origin
    if keeps_body and not same_origin and method not in ("GET", "HEAD"):
        raise Permanent(
            f"{described} was redirected to another origin, which must not get the request body"
        )
    headers = {
        name: value
        for name, value in request.headers.items()
        if (same_origin or name in HARMLESS_HEADERS)
        and name != "host"
        and (keeps_body or name != "content-type")
    }
    return Request(method, url, headers, request.content if keeps_body else b"")


def _target(origin: Url, location: str, described: str) -> Url:
    try:
        target = origin.join(location)
    except ValueError:
        raise Permanent(f"{described} was redirected to a URL that cannot be parsed") from None
    # Never use the credentials that a server puts into a redirect.
    return target.without_fragment().without_user()
