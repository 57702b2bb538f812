"""Who may use the API: keys, made once and shown once, and browsers that signed in with one."""

import hashlib
import hmac
import re
import secrets
from datetime import timedelta
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.desk import Desk, check_text, not_found
from syncline.model import ApiKey
from syncline.store import keys
from syncline.store.pool import Transaction

KEY = re.compile(r"sl(?:op|te)_([0-9a-f]{12})_[0-9a-f]{64}")
SESSION = re.compile(r"[0-9a-f]{64}")
SESSION_LASTS = timedelta(hours=12)
LONGEST_LIFE_DAYS = 3650
NO_DIGEST = bytes(32)  # compared with where no key is found, so that it takes as long


class Access(Desk):
    async def create_key(
        self, name: str, *, tenant_id: str | None = None, expires_in: timedelta | None = None
    ) -> tuple[ApiKey, str]:
        """Return a new key's entry, and the key itself, which nobody can show again.

        Without a tenant it is an operator's, who sees everybody.
        """
        check_text("name", name, characters=100)
        if tenant_id is not None:
            check_text("tenant_id", tenant_id, characters=255)
        longest = timedelta(days=LONGEST_LIFE_DAYS)
        if expires_in is not None and not timedelta() < expires_in <= longest:
            raise ValueError(
                f"expires_in is {expires_in}; it must be more than nothing "
                f"and at most {LONGEST_LIFE_DAYS} days"
            )
        prefix = secrets.token_hex(6)
        secret = f"{'slop' if tenant_id is None else 'slte'}_{prefix}_{secrets.token_hex(32)}"

        async def insert(tx: Transaction) -> ApiKey:
            now = await self._clock.now(tx)
            expires_at = now + expires_in if expires_in is not None else None
            key = ApiKey(new_id(), name, tenant_id, prefix, now, expires_at, None)
            await keys.insert(tx, key, _digest(secret))
            return key

        return await self._pool.retrying(insert), secret

    async def list_keys(self) -> list[ApiKey]:
        """Return every key, also those that no longer open anything."""
        return await self._pool.retrying(keys.list_all)

    async def revoke_key(self, key_id: UUID) -> ApiKey:
        """Refuse a key from the next request on, and sign out whoever came in with it."""

        async def change(tx: Transaction) -> ApiKey:
            revoked = await keys.revoke(tx, key_id, now=await self._clock.now(tx))
            if revoked is None:
                raise not_found("key", key_id)
            return revoked

        return await self._pool.retrying(change)

    async def has_keys(self) -> bool:
        """Return whether there was ever a key: from then on nobody comes in without."""
        return await self._pool.retrying(keys.exist)

    async def authenticate(self, secret: str) -> ApiKey | None:
        """Return the key's entry if it is good at this moment."""
        match = KEY.fullmatch(secret)

        async def find(tx: Transaction) -> tuple[ApiKey, bytes] | None:
            prefix = match[1] if match else ""
            return await keys.find(tx, prefix, now=await self._clock.now(tx))

        found = await self._pool.retrying(find)
        key, digest = found if found is not None else (None, NO_DIGEST)
        is_proved = hmac.compare_digest(digest, _digest(secret))
        return key if is_proved else None

    async def sign_in(self, secret: str) -> str | None:
        """Return the token of a new session; None where the key is no good."""
        key = await self.authenticate(secret)
        if key is None:
            return None
        session = secrets.token_hex(32)

        async def insert(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            expires_at = now + SESSION_LASTS
            await keys.insert_session(tx, _digest(session), key.id, now=now, expires_at=expires_at)

        await self._pool.retrying(insert)
        return session

    async def read_session(self, session: str) -> ApiKey | None:
        """Return the key that a browser signed in with, if both are still good."""
        if not SESSION.fullmatch(session):
            return None

        async def find(tx: Transaction) -> ApiKey | None:
            return await keys.find_session(tx, _digest(session), now=await self._clock.now(tx))

        return await self._pool.retrying(find)

    async def sign_out(self, session: str) -> None:
        async def delete(tx: Transaction) -> None:
            await keys.delete_session(tx, _digest(session))

        await self._pool.retrying(delete)


def _digest(secret: str) -> bytes:
    """Return what is stored: for 256 random bits a fast digest is as safe as a slow one."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()
