"""Who asks: by a key in the header, by a browser's session, or from this very machine."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response

from syncline.api.problems import Problem
from syncline.engine.access import SESSION_LASTS
from syncline.engine.app import Engine
from syncline.model import ApiKey

COOKIE = "syncline_session"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
CSRF_HEADER = "x-csrf-token"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks, and whose rows they may see: one tenant's, or everybody's."""

    name: str
    tenant_id: str | None = None
    key_id: UUID | None = None
    session: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.tenant_id is None

    @property
    def csrf_token(self) -> str:
        """Return what a form of this session must carry; empty where there is no session."""
        if self.session is None:
            return ""
        return hmac.new(self.session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def sees(self, tenant_id: str | None) -> str | None:
        """Return the tenant to be asked for: the key's own, or for an operator the one named."""
        if self.tenant_id is not None and tenant_id not in (None, self.tenant_id):
            raise Problem(403, "other-tenant", "this key sees one tenant: leave tenant out")
        return self.tenant_id if self.tenant_id is not None else tenant_id


LOCAL = Person("local")


class Gate:
    """Tells who asks; where others can reach the server, or a key exists, nobody is let by."""

    def __init__(self, engine: Engine, *, is_public: bool) -> None:
        self._access = engine.access
        self._needs_key = is_public

    @property
    def is_closed(self) -> bool:
        """Return whether it is known already that a key is needed."""
        return self._needs_key

    async def needs_key(self) -> bool:
        """Return whether a key is needed; once there was one, it always is."""
        if not self._needs_key:
            self._needs_key = await self._access.has_keys()
        return self._needs_key

    async def identify(self, request: Request) -> Person:
        """Return who asks, or raise the problem that tells what is missing."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_key(header)
        session = request.cookies.get(COOKIE)
        key = await self._access.read_session(session) if session else None
        if key is not None:
            return self._by_session(request, key, session)
        if await self.needs_key():
            raise Problem(401, "key", "send a key as `Authorization: Bearer …`", headers=CHALLENGE)
        if any(name in request.headers for name in FORWARDED):
            raise Problem(403, "proxied", "requests through a proxy need a key: create one first")
        return LOCAL

    async def sign_in(self, request: Request, secret: str, response: Response) -> bool:
        """Let a browser in with a key; return whether the key was good."""
        found = await self._access.sign_in(secret.strip())
        if found is None:
            return False
        forwarded = request.headers.get("x-forwarded-proto", request.url.scheme)
        response.set_cookie(
            COOKIE,
            found,
            max_age=int(SESSION_LASTS.total_seconds()),
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

    async def _by_key(self, header: str) -> Person:
        scheme, _, secret = header.partition(" ")
        key = await self._access.authenticate(secret.strip())
        if scheme.lower() != "bearer" or key is None:
            raise Problem(
                401, "key", "this key is not good: unknown, expired or revoked", headers=CHALLENGE
            )
        return Person(key.name, key.tenant_id, key.id)

    def _by_session(self, request: Request, key: ApiKey, session: str | None) -> Person:
        person = Person(key.name, key.tenant_id, key.id, session)
        if request.url.path.startswith("/v1/") and request.method not in SAFE_METHODS:
            check_csrf(person, request.headers.get(CSRF_HEADER, ""))
        return person


CHALLENGE = {"WWW-Authenticate": 'Bearer realm="syncline"'}


def check_csrf(person: Person, token: str) -> None:
    """Refuse a change that a signed-in browser was led to by somebody else's page."""
    if not hmac.compare_digest(person.csrf_token.encode(), token.encode()):
        raise Problem(403, "csrf", "the form has expired: load the page again")


async def _person(request: Request) -> Person:
    """Return who asks, as the middleware found out before it read the body."""
    person: Person = request.state.person
    return person


async def _operator(person: Annotated[Person, Depends(_person)]) -> Person:
    if not person.is_operator:
        raise Problem(403, "operators-only", "an operator's key is needed here")
    return person


Asking = Annotated[Person, Depends(_person)]
"""Whoever asks, in the signature of a route."""

AskingOperator = Annotated[Person, Depends(_operator)]
"""Whoever asks, who must be an operator."""
