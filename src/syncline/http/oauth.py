"""Request a new access token: authlib's protocol over our own HTTP client."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import describe
from syncline.http.client import HttpClient
from syncline.http.status_errors import error_of

GRANT_REFUSED = {"invalid_grant", "bad_refresh_token"}
MAX_RESPONSE_BYTES = 65_536  # authlib parses it on the event loop
EXPLAINED = frozenset({400, 401, 403})  # statuses whose body is an OAuth error


class GrantRefused(Exception):
    """The provider no longer accepts the refresh token."""


async def request_token(
    http: HttpClient, values: Mapping[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Return the credentials with a new access token, or raise the reason there is none."""
    client = AsyncOAuth2Client(
        client_id=values.get("client_id"),
        client_secret=values.get("client_secret"),
        scope=values.get("scope"),
        token_endpoint_auth_method=values.get("token_auth_method"),
        transport=_ClientTransport(http),
        trust_env=False,
    )
    try:
        async with client:
            token = await _request(client, values)
    except OAuthError as error:
        reason = f"{error.error}: {error.description}" if error.description else str(error.error)
        if error.error in GRANT_REFUSED:
            raise GrantRefused(reason) from None
        raise Permanent(f"the token endpoint refused: {reason}") from None
    except (httpx2.HTTPError, ValueError):
        raise Transient("the token endpoint answered with something that is not a token") from None
    return _merged(values, token, now)


async def _request(client: AsyncOAuth2Client, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if refresh_token := values.get("refresh_token"):
        token = await client.refresh_token(values["token_url"], refresh_token=refresh_token)
    else:
        token = await client.fetch_token(values["token_url"], grant_type="client_credentials")
    return dict(token)


def _merged(values: Mapping[str, Any], token: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the credentials with the new tokens; the refresh token may stay the same."""
    if not isinstance(token.get("access_token"), str) or not token["access_token"]:
        raise Transient("the token endpoint answered without an access token")
    kept = {name: value for name, value in values.items() if name != "expires_at"}
    new = {name: token[name] for name in ("access_token", "refresh_token") if token.get(name)}
    lasts = token.get("expires_in")
    if isinstance(lasts, int | float) or (isinstance(lasts, str) and lasts.isdigit()):
        new["expires_at"] = int(now.timestamp() + float(lasts))
    return {**kept, **new}


class _ClientTransport(httpx2.AsyncBaseTransport):
    """Sends authlib's requests through our client, which checks, bounds and records them."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {
            name: request.headers[name]
            for name in ("accept", "authorization", "content-type")
            if name in request.headers
        }
        response = await self._http.request(
            request.method,
            str(request.url),
            headers=headers,
            content=request.content,
            accept=EXPLAINED,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        if response.status_code in EXPLAINED and not _is_oauth_error(response):
            raise _unexplained(response, request)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            content=response.content,
            request=request,
        )


def _is_oauth_error(response: httpx2.Response) -> bool:
    try:
        body = response.json()
    except ValueError:
        return False
    return isinstance(body, dict) and isinstance(body.get("error"), str)


def _unexplained(response: httpx2.Response, request: httpx2.Request) -> SyncError:
    """Return the error of a refusal that is not an OAuth error; it never revokes the grant."""
    from syncline.clock import host_time

    described = describe(request.method, request.url)
    usual = error_of(response, described=described, now=host_time())
    return usual if usual is not None and response.status_code == 403 else Transient(str(usual))
