"""Authentication and scopes: a key in the header, a browser's session, or this machine.

Every route declares the scope that it needs in its signature: `principal: CanOperate`.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from syncline.api.limits import LoginAttempts
from syncline.api.problems import Problem
from syncline.api.representations import represent
from syncline.app import Engine
from syncline.model import ApiKey, KeyStatus, Scope
from syncline.policy.audit import Actor, ActorKind
from syncline.policy.rate_limit import network_of
from syncline.services.access import SESSION_LIFE

COOKIE = "syncline_session"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
CSRF_HEADER = "x-csrf-token"
EXPIRY_HEADER = "Syncline-Key-Expires"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request, which tenant's rows they may see, and what they may do."""

    name: str
    tenant_id: str | None = None
    key_id: UUID | None = None
    session: str | None = None
    scope: Scope = Scope.ADMIN
    key_expires_at: datetime | None = None
    """When the key expires; None unless that is soon."""

    @classmethod
    def with_key(cls, key: ApiKey, session: str | None = None) -> "Principal":
        expires_at = key.expires_at if key.status == KeyStatus.EXPIRING else None
        return cls(key.name, key.tenant_id, key.id, session, key.scope, expires_at)

    @property
    def is_operator(self) -> bool:
        return self.tenant_id is None

    @property
    def caller(self) -> str:
        """Return the name under which requests are limited: a tenant, or an operator's key."""
        if self.tenant_id is not None:
            return f"tenant {self.tenant_id}"
        return f"key {self.key_id}" if self.key_id is not None else "local"

    @property
    def csrf_token(self) -> str:
        """Return the token that forms of this session carry; empty without a session."""
        if self.session is None:
            return ""
        return hmac.new(self.session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def actor(self, address: str) -> Actor:
        """Return whom the audit names as the one who acts."""
        kind = ActorKind.LOCAL if self.key_id is None else ActorKind.KEY
        if self.tenant_id is not None:
            kind = ActorKind.TENANT_KEY
        return Actor(kind, self.name, self.key_id, address)

    def may(self, scope: str) -> bool:
        return self.scope.includes(Scope(scope))

    def check(self, scope: Scope) -> None:
        """Refuse the request unless the key has the scope."""
        if not self.may(scope):
            detail = f"this key has the scope {self.scope}; the request needs the scope {scope}"
            raise Problem(403, "scope", detail)

    def sees(self, tenant_id: str | None) -> str | None:
        """Return the tenant to filter by: the key's own, or the one that an operator named."""
        if self.tenant_id is not None and tenant_id not in (None, self.tenant_id):
            raise Problem(403, "other-tenant", "this key sees one tenant only; leave tenant out")
        return self.tenant_id if self.tenant_id is not None else tenant_id


LOCAL = Principal("local")


class Authenticator:
    """Identifies the sender of a request.

    A key is required once one exists, and always on an address that others can reach.
    """

    def __init__(self, engine: Engine, *, is_public: bool) -> None:
        self._access = engine.access
        self._requires_key = is_public
        failures = engine.settings.api.failed_logins_per_minute
        self._attempts = LoginAttempts(failures, engine.telemetry.api)

    @property
    def requires_key(self) -> bool:
        """Return whether a key is known to be required, without asking the database."""
        return self._requires_key

    async def _check_requires_key(self) -> bool:
        """Return whether a key is required; once one existed, it always is."""
        if not self._requires_key:
            self._requires_key = await self._access.has_keys()
        return self._requires_key

    async def identify(self, request: Request) -> Principal:
        """Return the sender, or raise the problem that says what is missing."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_key(header, address_of(request))
        session = request.cookies.get(COOKIE)
        key = await self._access.read_session(session) if session else None
        if session and key is not None:
            return self._by_session(request, key, session)
        if await self._check_requires_key():
            raise Problem(401, "key", SEND_A_KEY, headers=CHALLENGE)
        if any(name in request.headers for name in FORWARDED):
            detail = "requests through a proxy need a key; create one with `syncline keys create`"
            raise Problem(403, "proxied", detail)
        return LOCAL

    def recognise(self, request: Request) -> str | None:
        """Return the caller, if the key or session was valid recently; ask no database."""
        header = request.headers.get("authorization")
        secret = _secret_of(header) if header is not None else request.cookies.get(COOKIE)
        return self._attempts.caller_of(secret) if secret else None

    async def sign_in(self, request: Request, secret: str, response: Response) -> bool:
        """Start a session for a browser; return whether the key was valid."""
        secret, address = secret.strip(), address_of(request)
        self._attempts.check(secret, address)
        found = await self._access.sign_in(secret, address=address)
        if found is None:
            self._failed(secret, address)
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
            await self._access.sign_out(session, address=address_of(request))
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")

    async def _by_key(self, header: str, address: str) -> Principal:
        scheme, secret = header.partition(" ")[0], _secret_of(header)
        self._attempts.check(secret, address)
        key = await self._access.authenticate(secret)
        if scheme.lower() != "bearer" or key is None:
            self._failed(secret, address)
            raise Problem(401, "key", "invalid key: unknown, expired or revoked", headers=CHALLENGE)
        principal = Principal.with_key(key)
        self._attempts.succeeded(secret, principal.caller)
        return principal

    def _failed(self, secret: str, address: str) -> None:
        self._attempts.failed(secret, address)
        self._access.refuse(address)

    def _by_session(self, request: Request, key: ApiKey, session: str) -> Principal:
        principal = Principal.with_key(key, session)
        self._attempts.succeeded(session, principal.caller)
        if request.url.path.startswith("/v1/") and request.method not in SAFE_METHODS:
            check_csrf(principal, request.headers.get(CSRF_HEADER, ""))
        return principal


def address_of(request: Request) -> str:
    """Return the sender's network; behind a trusted proxy, the network that the proxy names."""
    return network_of(request.client.host) if request.client is not None else "unknown"


def _secret_of(header: str) -> str:
    return header.partition(" ")[2].strip()


# Worded so that the masking of secrets, which every answer passes, leaves it alone.
SEND_A_KEY = "send a key in the header `Authorization`, as `Bearer KEY`"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="syncline"'}


def check_csrf(principal: Principal, token: str) -> None:
    """Refuse a form without the session's token, since another site may have sent it."""
    if not hmac.compare_digest(principal.csrf_token.encode(), token.encode()):
        raise Problem(403, "csrf", "the form has expired; reload the page")


async def identify(request: Request) -> Principal:
    """Return the principal that the middleware identified before it read the body."""
    principal: Principal = request.state.principal
    return principal


@dataclass(frozen=True)
class Needs:
    """A route's requirement: a scope, and perhaps an operator."""

    scope: Scope
    is_for_operators: bool = False
    identify: Callable[[Request], Awaitable[Principal]] = identify

    async def __call__(self, request: Request) -> Principal:
        principal = await self.identify(request)
        if self.is_for_operators and not principal.is_operator:
            raise Problem(403, "operators-only", "this needs an operator's key")
        principal.check(self.scope)
        return principal


class ScopedRoute(APIRoute):
    """A route that must declare one scope, and has an operation id, such as `connections.get`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["operation_id"] = options.get("operation_id") or _operation_id(endpoint.__name__)
        super().__init__(path, endpoint, **options)
        needed = [found.call for found in self.dependant.dependencies]
        scopes = [one.scope for one in needed if isinstance(one, Needs)]
        if len(scopes) != 1:
            raise TypeError(f"{path} declares {len(scopes)} scopes; its signature must declare one")
        # `{}` is a request without a key: on this machine none is required until one exists.
        self.openapi_extra = {"security": [{"key": [str(scopes[0])]}, {}]}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if "GET" not in (self.methods or ()) or not self.path.startswith("/v1/"):
            return handle

        async def answer(request: Request) -> Response:
            return await represent(request, await handle(request))

        return answer


def _operation_id(name: str) -> str:
    """Return `jobs.list` for `list_jobs`, and `jobs.get` for `get_job`."""
    verb, _, noun = name.partition("_")
    return f"{noun}.{verb}" if noun.endswith("s") else f"{noun}s.{verb}"


def engine_of(request: Request) -> Engine:
    """Return the engine for the sender. The database shows it only that tenant's rows."""
    engine: Engine = request.app.state.engine
    principal: Principal = request.state.principal
    return engine.for_request(principal.tenant_id, actor=principal.actor(address_of(request)))


CanRead = Annotated[Principal, Depends(Needs(Scope.READ))]
"""The sender, whose key may read. Every key may."""

CanOperate = Annotated[Principal, Depends(Needs(Scope.OPERATE))]
"""The sender, whose key may sync, pause and tune what exists."""

CanAdminister = Annotated[Principal, Depends(Needs(Scope.ADMIN))]
"""The sender, whose key may add, delete and redirect connections."""

OperatorCanRead = Annotated[Principal, Depends(Needs(Scope.READ, is_for_operators=True))]
OperatorCanOperate = Annotated[Principal, Depends(Needs(Scope.OPERATE, is_for_operators=True))]
OperatorCanAdminister = Annotated[Principal, Depends(Needs(Scope.ADMIN, is_for_operators=True))]
