"""Who may use the API: keys, each shown once, and browser sessions that began with a key."""

import hashlib
import hmac
import re
import secrets
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.upkeep.key_uses import KeyUses
from syncline.errors import Invalid, NotFound
from syncline.model import ApiKey, Scope
from syncline.policy.audit import Action, Actor, about_key
from syncline.policy.keys import key_status
from syncline.services.base import BaseService, ServiceContext
from syncline.services.validation import check_choice, check_text
from syncline.store.data import audit, keys
from syncline.store.pool import EVERY_TENANT, Transaction
from syncline.text import rfc3339

KEY = re.compile(r"(syncline_(?:operator|tenant)_[0-9a-f]{12})_[0-9a-f]{64}")
OLD_KEY = re.compile(r"sl(?:op|te)_([0-9a-f]{12})_[0-9a-f]{64}")  # from before keys had scopes
SESSION = re.compile(r"[0-9a-f]{64}")
SESSION_LIFE = timedelta(hours=12)
LONGEST_LIFE_DAYS = 3650
NO_DIGEST = bytes(32)  # compared if no key is found, so that both cases take equally long


class Access(BaseService):
    def __init__(self, context: ServiceContext, uses: KeyUses) -> None:
        super().__init__(context)
        self._uses = uses

    async def create_key(
        self,
        name: str,
        *,
        tenant_id: str | None = None,
        scope: str = Scope.ADMIN,
        expires_in: timedelta | None = None,
        never_expires: bool = False,
    ) -> tuple[ApiKey, str]:
        """Return a new key's entry, and the key itself, which cannot be shown again.

        Without a tenant it is an operator's key, which sees every tenant. Without `expires_in` it
        lasts for `api.key_days`.
        """
        check_text("name", name, characters=100)
        _check_tenant(tenant_id)
        check_choice("scope", scope, Scope)
        _check_life(expires_in, never_expires=never_expires)
        life = None if never_expires else expires_in or self._settings.api.key_life
        prefix, secret = _new_secret(tenant_id)

        async def insert(tx: Transaction) -> ApiKey:
            now = await self._clock.now(tx)
            key = ApiKey(
                id=new_id(),
                name=name,
                tenant_id=tenant_id,
                prefix=prefix,
                scope=Scope(scope),
                created_at=now,
                expires_at=now + life if life is not None else None,
            )
            await keys.insert(tx, key, _digest(secret))
            entry = about_key(key, Action.KEYS_CREATE, after=_shown(key))
            await self._record(tx, entry, now=now)
            return key

        return await self._pool.retrying(insert), secret

    async def list_keys(self) -> list[ApiKey]:
        """Return every key, expired and revoked ones too."""

        async def read(tx: Transaction) -> list[ApiKey]:
            now = await self._clock.now(tx)
            return [self._judged(key, now) for key in await keys.list_all(tx)]

        return await self._pool.retrying(read)

    async def revoke_key(self, key_id: UUID) -> ApiKey:
        """Refuse a key from the next request on, and end the sessions that it began."""

        async def change(tx: Transaction) -> ApiKey:
            now = await self._clock.now(tx)
            key = await keys.lock(tx, key_id)
            if key is None:
                raise NotFound("key", key_id)
            if key.revoked_at is None:
                entry = about_key(key, Action.KEYS_REVOKE, before=_shown(key))
                await self._record(tx, entry, now=now)
            return self._judged(await keys.revoke(tx, key, now=now), now)

        return await self._pool.retrying(change)

    async def has_keys(self) -> bool:
        """Return whether a key was ever created: from then on, every request needs one."""
        return await self._pool.retrying(keys.exist)

    async def authenticate(self, secret: str) -> ApiKey | None:
        """Return the key's entry if the key is valid now."""
        match = KEY.fullmatch(secret) or OLD_KEY.fullmatch(secret)

        async def find(tx: Transaction) -> tuple[datetime, tuple[ApiKey, bytes] | None]:
            now = await self._clock.now(tx)
            return now, await keys.find(tx, match[1] if match else "", now=now)

        now, found = await self._pool.retrying(find)
        key, digest = found if found is not None else (None, NO_DIGEST)
        is_proved = hmac.compare_digest(digest, _digest(secret))
        return self._used(key, now) if is_proved else None

    async def sign_in(self, secret: str, *, address: str | None = None) -> str | None:
        """Return the token of a new session, or None if the key is not valid."""
        key = await self.authenticate(secret)
        if key is None:
            return None
        session = secrets.token_hex(32)

        async def insert(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            expires_at = now + SESSION_LIFE
            await keys.insert_session(tx, _digest(session), key.id, now=now, expires_at=expires_at)
            entry = about_key(key, Action.SESSIONS_BEGIN)
            await audit.record(tx, Actor.of_key(key, address), [entry], now=now)

        await self._pool.retrying(insert)
        return session

    async def read_session(self, session: str) -> ApiKey | None:
        """Return the key that a session began with, if both are still valid."""
        if not SESSION.fullmatch(session):
            return None

        async def find(tx: Transaction) -> tuple[datetime, ApiKey | None]:
            now = await self._clock.now(tx)
            return now, await keys.find_session(tx, _digest(session), now=now)

        now, key = await self._pool.retrying(find)
        return self._used(key, now)

    async def sign_out(self, session: str, *, address: str | None = None) -> None:
        async def delete(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            key = await keys.find_session(tx, _digest(session), now=now)
            if await keys.delete_session(tx, _digest(session)) and key is not None:
                entry = about_key(key, Action.SESSIONS_END)
                await audit.record(tx, Actor.of_key(key, address), [entry], now=now)

        await self._pool.retrying(delete)

    def refuse(self, address: str) -> None:
        """Note that somebody at this address sent a key that is not valid."""
        self._uses.refuse(address)

    def _used(self, key: ApiKey | None, now: datetime) -> ApiKey | None:
        if key is None:
            return None
        self._uses.note(key.id, now)
        return self._judged(key, now)

    def _judged(self, key: ApiKey, now: datetime) -> ApiKey:
        """Return the key with its status, and with uses that are not stored yet."""
        last_used_at = self._uses.later(key.id, key.last_used_at)
        return replace(key, status=key_status(key, now), last_used_at=last_used_at)


def _shown(key: ApiKey) -> dict[str, Any]:
    """Return what the audit says of a key."""
    expires_at = "never" if key.expires_at is None else rfc3339(key.expires_at)
    return {
        "id": str(key.id),
        "begins_with": key.begins_with,
        "scope": key.scope,
        "expires_at": expires_at,
    }


def _new_secret(tenant_id: str | None) -> tuple[str, str]:
    """Return a new key's prefix, which may be shown, and the key itself."""
    kind = "operator" if tenant_id is None else "tenant"
    prefix = f"syncline_{kind}_{secrets.token_hex(6)}"
    return prefix, f"{prefix}_{secrets.token_hex(32)}"


def _check_tenant(tenant_id: str | None) -> None:
    if tenant_id is not None:
        check_text("tenant_id", tenant_id, characters=255)
        if tenant_id == EVERY_TENANT:
            raise Invalid("tenant_id", f"is {tenant_id!r}, which stands for every tenant")


def _check_life(expires_in: timedelta | None, *, never_expires: bool) -> None:
    if expires_in is None:
        return
    if never_expires:
        raise Invalid("expires_in", "is given; leave it out for a key that never expires")
    if not timedelta() < expires_in <= timedelta(days=LONGEST_LIFE_DAYS):
        allowed = f"positive and at most {LONGEST_LIFE_DAYS} days"
        raise Invalid("expires_in", f"is {expires_in}; it must be {allowed}")


def _digest(secret: str) -> bytes:
    """Return what is stored. For 256 random bits, a fast digest is as safe as a slow one."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()
