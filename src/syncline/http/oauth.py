"""Request a new access token with a refresh token or with the client's own credentials."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from syncline.clock import host_time
from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import describe
from syncline.http.auth import basic
from syncline.http.client import HttpClient
from syncline.http.messages import Response
from syncline.http.status_errors import error_of

GRANT_REFUSED = {"invalid_grant", "bad_refresh_token"}
MAX_RESPONSE_BYTES = 65_536  # it is parsed on the event loop
EXPLAINED = frozenset({400, 401, 403})  # statuses whose body is an OAuth error
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")


class GrantRefused(Exception):
    """The provider no longer accepts the refresh token."""


async def request_token(
    http: HttpClient, values: Mapping[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Return the credentials with a new access token, or raise the reason there is none."""
    headers, form = _authenticated(values)
    response = await http.post(
        str(values["token_url"]),
        headers={"accept": "application/json", **headers},
        data=form,
        accept=EXPLAINED,
        max_bytes=MAX_RESPONSE_BYTES,
    )
    token = _read(response)
    if isinstance(refusal := token.get("error"), str):
        _refuse(refusal, token.get("error_description"))
    if response.status_code in EXPLAINED:
        raise _unexplained(response)
    return _merged(values, token, now)


def _authenticated(values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and the form of a token request, with the client's credentials."""
    form = _grant(values)
    client_id, secret = values.get("client_id"), values.get("client_secret")
    method = values.get("token_auth_method") or ("client_secret_basic" if secret else "none")
    if method not in AUTH_METHODS:
        raise Permanent(f"token_auth_method must be one of {', '.join(AUTH_METHODS)}")
    if method == "client_secret_basic":
        return {"authorization": basic(str(client_id or ""), str(secret or ""))}, form
    if client_id:
        form["client_id"] = str(client_id)
    if method == "client_secret_post":
        form["client_secret"] = str(secret or "")
    return {}, form


def _grant(values: Mapping[str, Any]) -> dict[str, str]:
    if refresh_token := values.get("refresh_token"):
        form = {"grant_type": "refresh_token", "refresh_token": str(refresh_token)}
    else:
        form = {"grant_type": "client_credentials"}
    if scope := values.get("scope"):
        form["scope"] = " ".join(scope) if isinstance(scope, list | tuple) else str(scope)
    return form


def _read(response: Response) -> Mapping[str, Any]:
    """Return the object in a response; an error page has none."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    if response.status_code in EXPLAINED:
        return {}
    raise Transient("the token endpoint answered with something that is not a token")


def _refuse(refusal: str, description: Any) -> None:
    reason = f"{refusal}: {description}" if description else refusal
    if refusal in GRANT_REFUSED:
        raise GrantRefused(reason)
    raise Permanent(f"the token endpoint refused: {reason}")


def _unexplained(response: Response) -> SyncError:
    """Return the error of a refusal that is not an OAuth error; it never revokes the grant."""
    described = describe(response.request.method, response.url)
    usual = error_of(response, described=described, now=host_time())
    return usual if usual is not None and response.status_code == 403 else Transient(str(usual))


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
