"""A new access token from the provider, by authlib, over the client that all calls go through."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from syncline.errors import Permanent, SyncError, Transient
from syncline.http.client import HttpClient
from syncline.http.safe_url import describe
from syncline.http.status_errors import error_of

GRANT_REFUSED = {"invalid_grant", "bad_refresh_token"}
LARGEST_ANSWER = 65_536  # bytes; authlib parses it on the loop
ANSWERS = frozenset({400, 401, 403})  # in which a token endpoint says what is wrong


class GrantRefused(Exception):
    """The provider no longer accepts the refresh token."""


async def request_token(
    http: HttpClient, values: Mapping[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Return the credentials with a new access token, or raise what kept it from being had."""
    client = AsyncOAuth2Client(
        client_id=values.get("client_id"),
        client_secret=values.get("client_secret"),
        scope=values.get("scope"),
        token_endpoint_auth_method=values.get("token_auth_method"),
        transport=_Through(http),
        trust_env=False,
    )
    try:
        async with client:
            token = await _ask(client, values)
    except OAuthError as error:
        told = f"{error.error}: {error.description}" if error.description else str(error.error)
        if error.error in GRANT_REFUSED:
            raise GrantRefused(told) from None
        raise Permanent(f"the token endpoint refused: {told}") from None
    except (httpx2.HTTPError, ValueError):
        raise Transient("the token endpoint answered what is no token") from None
    return _merged(values, token, now)


async def _ask(client: AsyncOAuth2Client, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if refresh_token := values.get("refresh_token"):
        token = await client.refresh_token(values["token_url"], refresh_token=refresh_token)
    else:
        token = await client.fetch_token(values["token_url"], grant_type="client_credentials")
    return dict(token)


def _merged(values: Mapping[str, Any], token: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the credentials with what the answer brought; a refresh token may stay the same."""
    if not isinstance(token.get("access_token"), str) or not token["access_token"]:
        raise Transient("the token endpoint answered without an access token")
    kept = {name: value for name, value in values.items() if name != "expires_at"}
    new = {name: token[name] for name in ("access_token", "refresh_token") if token.get(name)}
    lasts = token.get("expires_in")
    if isinstance(lasts, int | float) or (isinstance(lasts, str) and lasts.isdigit()):
        new["expires_at"] = int(now.timestamp() + float(lasts))
    return {**kept, **new}


class _Through(httpx2.AsyncBaseTransport):
    """Hands authlib's requests to our client: checked, bounded, counted like any other."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {
            name: request.headers[name]
            for name in ("accept", "authorization", "content-type")
            if name in request.headers
        }
        answer = await self._http.request(
            request.method,
            str(request.url),
            headers=headers,
            content=request.content,
            accept=ANSWERS,
            max_bytes=LARGEST_ANSWER,
        )
        if answer.status_code in ANSWERS and not _is_oauth_error(answer):
            raise _unexplained(answer, request)
        return httpx2.Response(
            answer.status_code, headers=answer.headers, content=answer.content, request=request
        )


def _is_oauth_error(answer: httpx2.Response) -> bool:
    try:
        body = answer.json()
    except ValueError:
        return False
    return isinstance(body, dict) and isinstance(body.get("error"), str)


def _unexplained(answer: httpx2.Response, request: httpx2.Request) -> SyncError:
    """Return what a refusal without OAuth's words means: never that the grant was revoked."""
    from syncline.clock import host_time

    asked = describe(request.method, request.url)
    usual = error_of(answer, asked=asked, now=host_time())
    return usual if usual is not None and answer.status_code == 403 else Transient(str(usual))
