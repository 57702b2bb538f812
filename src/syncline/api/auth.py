"""Who asks (by a key in the header, by a browser's session, or from this machine), and what for.

Every route names the scope that it needs, in its signature: `principal: CanOperate`.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from syncline.api.limits import LoginAttempts
from syncline.api.problems import Problem
from syncline.app import Engine
from syncline.model import ApiKey, KeyStatus, Scope
from syncline.policy.rate_limit import network_of
from syncline.services.access import SESSION_LIFE

COOKIE = "syncline_session"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
CSRF_HEADER = "x-csrf-token"
EXPIRY_HEADER = "Syncline-Key-Expires"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, whose rows they may see (one tenant's, or everybody's), and what they may do."""

    name: str
    tenant_id: str | None = None
    key_id: UUID | None = None
    session: str | None = None
    scope: Scope = Scope.ADMIN
    key_expires_at: datetime | None = None
    """When the key ends; None where that is not soon."""

    @classmethod
    def with_key(cls, key: ApiKey, session: str | None = None) -> "Principal":
        ends_at = key.expires_at if key.status == KeyStatus.EXPIRING else None
        return cls(key.name, key.tenant_id, key.id, session, key.scope, ends_at)

    @property
    def is_operator(self) -> bool:
        return self.tenant_id is None

    @property
    def caller(self) -> str:
        """Return whose requests are limited together: a tenant's, or an operator's key's."""
        if self.tenant_id is not None:
            return f"tenant {self.tenant_id}"
        return f"key {self.key_id}" if self.key_id is not None else "local"

    @property
    def csrf_token(self) -> str:
        """Return what a form of this session must carry; empty where there is no session."""
        if self.session is None:
            return ""
        return hmac.new(self.session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def may(self, scope: str) -> bool:
        return self.scope.includes(Scope(scope))

    def check(self, scope: Scope) -> None:
        """Refuse what needs a scope that the key does not have."""
        if not self.may(scope):
            raise Problem(
                403, "scope", f"this key has the scope {self.scope}; this needs the scope {scope}"
            )

    def sees(self, tenant_id: str | None) -> str | None:
        """Return the tenant to be asked for: the key's own, or for an operator the one named."""
        if self.tenant_id is not None and tenant_id not in (None, self.tenant_id):
            raise Problem(403, "other-tenant", "this key sees one tenant: leave tenant out")
        return self.tenant_id if self.tenant_id is not None else tenant_id


LOCAL = Principal("local")


class Authenticator:
    """Tells who asks; where others can reach the server, or a key exists, nobody is let by."""

    def __init__(self, engine: Engine, *, is_public: bool) -> None:
        self._access = engine.access
        self._needs_key = is_public
        failures = engine.settings.api.failed_logins_per_minute
        self._attempts = LoginAttempts(failures, engine.telemetry.api)

    @property
    def is_closed(self) -> bool:
        """Return whether it is known already that a key is needed."""
        return self._needs_key

    async def needs_key(self) -> bool:
        """Return whether a key is needed; once there was one, it always is."""
        if not self._needs_key:
            self._needs_key = await self._access.has_keys()
        return self._needs_key

    async def identify(self, request: Request) -> Principal:
        """Return who asks, or raise the problem that tells what is missing."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_key(header, address_of(request))
        session = request.cookies.get(COOKIE)
        key = await self._access.read_session(session) if session else None
        if session and key is not None:
            return self._by_session(request, key, session)
        if await self.needs_key():
            raise Problem(401, "key", SEND_A_KEY, headers=CHALLENGE)
        if any(name in request.headers for name in FORWARDED):
            raise Problem(403, "proxied", "requests through a proxy need a key: create one first")
        return LOCAL

    def recognise(self, request: Request) -> str | None:
        """Return whose requests these are, if their key or session was good lately."""
        header = request.headers.get("authorization")
        secret = _secret_of(header) if header is not None else request.cookies.get(COOKIE)
        return self._attempts.caller_of(secret) if secret else None

    async def sign_in(self, request: Request, secret: str, response: Response) -> bool:
        """Let a browser in with a key; return whether the key was good."""
        secret, address = secret.strip(), address_of(request)
        self._attempts.check(secret, address)
        found = await self._access.sign_in(secret)
        if found is None:
            self._attempts.failed(secret, address)
            return False
        forwarded = request.headers.get("x-forwarded-proto", request.url.scheme)
        response.set_cookie(
            COOKIE,
            found,
            max_age=int(SESSION_LIFE.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=forwarded == "https",
            path="/",
        )
        return True

    async def sign_out(self, request: Request, response: Response) -> None:
        if session := request.cookies.get(COOKIE):
            await self._access.sign_out(session)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")

    async def _by_key(self, header: str, address: str) -> Principal:
        scheme, secret = header.partition(" ")[0], _secret_of(header)
        self._attempts.check(secret, address)
        key = await self._access.authenticate(secret)
        if scheme.lower() != "bearer" or key is None:
            self._attempts.failed(secret, address)
            raise Problem(
                401, "key", "this key is not good: unknown, expired or revoked", headers=CHALLENGE
            )
        principal = Principal.with_key(key)
        self._attempts.succeeded(secret, principal.caller)
        return principal

    def _by_session(self, request: Request, key: ApiKey, session: str) -> Principal:
        principal = Principal.with_key(key, session)
        self._attempts.succeeded(session, principal.caller)
        if request.url.path.startswith("/v1/") and request.method not in SAFE_METHODS:
            check_csrf(principal, request.headers.get(CSRF_HEADER, ""))
        return principal


def address_of(request: Request) -> str:
    """Return whom the sender's address stands for; of a trusted proxy, whom it names."""
    return network_of(request.client.host) if request.client is not None else "unknown"


def _secret_of(header: str) -> str:
    return header.partition(" ")[2].strip()


# Written so that the mask for secrets, which every answer passes, finds none in it.
SEND_A_KEY = "send a key in the header `Authorization`, as `Bearer KEY`"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="syncline"'}


def check_csrf(principal: Principal, token: str) -> None:
    """Refuse a change that a signed-in browser was led to by somebody else's page."""
    if not hmac.compare_digest(principal.csrf_token.encode(), token.encode()):
        raise Problem(403, "csrf", "the form has expired: load the page again")


async def identify(request: Request) -> Principal:
    """Return who asks, as the middleware found out before it read the body."""
    principal: Principal = request.state.principal
    return principal


@dataclass(frozen=True)
class Needs:
    """Lets whoever may do something into a route, and tells what that is."""

    scope: Scope
    is_for_operators: bool = False
    identify: Callable[[Request], Awaitable[Principal]] = identify

    async def __call__(self, request: Request) -> Principal:
        principal = await self.identify(request)
        if self.is_for_operators and not principal.is_operator:
            raise Problem(403, "operators-only", "an operator's key is needed here")
        principal.check(self.scope)
        return principal


class ScopedRoute(APIRoute):
    """A route that cannot be made without a scope, and tells it in the API's description."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        needed = [found.call for found in self.dependant.dependencies]
        scopes = [one.scope for one in needed if isinstance(one, Needs)]
        if len(scopes) != 1:
            raise TypeError(f"{path} names {len(scopes)} scopes; its signature must name one")
        # Without a key too: on the machine itself none is needed until there is one.
        self.openapi_extra = {"security": [{"key": [str(scopes[0])]}, {}]}


CanRead = Annotated[Principal, Depends(Needs(Scope.READ))]
"""Whoever asks, whose key may read: any key."""

CanOperate = Annotated[Principal, Depends(Needs(Scope.OPERATE))]
"""Whoever asks, whose key may run, pause and tune what exists."""

CanAdminister = Annotated[Principal, Depends(Needs(Scope.ADMIN))]
"""Whoever asks, whose key may add, remove and redirect connections."""

OperatorCanRead = Annotated[Principal, Depends(Needs(Scope.READ, is_for_operators=True))]
OperatorCanAdminister = Annotated[Principal, Depends(Needs(Scope.ADMIN, is_for_operators=True))]
