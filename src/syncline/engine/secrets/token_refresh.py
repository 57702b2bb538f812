"""Refresh an access token once, however many runs in however many processes find it expired.

The run that gets the lease on the row asks the provider, and stores the new token before any run
uses it. The others wait and read it. No transaction is open meanwhile.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from syncline.clock import Clock, monotonic, pause
from syncline.engine.secrets.vault import Vault
from syncline.errors import Permanent, Transient, Unauthorized
from syncline.http.budgets import Spender
from syncline.http.credentials import Credentials, is_expired, is_refreshable
from syncline.http.environment import HttpEnvironment
from syncline.store.data import credentials
from syncline.store.data.credentials import Stored
from syncline.store.errors import is_passing, missing_right
from syncline.store.pool import Pool, Transaction
from syncline.store.queue.claims import Claim

CALL_SECONDS = 30.0
LEASE = timedelta(seconds=45)  # longer than the call, so that it lapses only if its holder died
PATIENCE_SECONDS = 120.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# A refresh whose lease lapsed may be about to store its token: read again before giving up.
SECOND_LOOKS = (0.0, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Turn:
    """What reading the row gave: credentials to use, or the lease to refresh them."""

    stored: Stored
    values: dict[str, Any]
    is_fresh: bool
    lease: UUID | None


class TokenRefresher:
    """Opens claimed credentials for their runs, and refreshes their tokens on request."""

    def __init__(self, pool: Pool, clock: Clock, vault: Vault) -> None:
        self._pool = pool
        self._clock = clock
        self._vault = vault
        self._tasks: set[asyncio.Task[Mapping[str, Any]]] = set()

    async def attach(self, claimed: Sequence[Claim]) -> None:
        """Give each claim its connection's credentials; read nothing if none has any."""
        holders = [claim for claim in claimed if claim.has_credentials]
        if not holders:
            return
        ids = [claim.connection_id for claim in holders]
        try:
            found = await self._pool.retrying(lambda tx: credentials.read(tx, ids))
        except Exception as error:  # the jobs are claimed, and each of them must end
            reason = missing_right(error) or f"{type(error).__name__}: {error}"
            for claim in holders:
                claim.credentials = Transient(f"the credentials could not be read: {reason}")
        else:
            for claim in holders:
                claim.credentials = found.get(claim.connection_id)

    def open_for_run(self, claim: Claim) -> Credentials | None:
        """Open a claimed job's credentials for its run, or raise the error that ends it."""
        stored: Stored | Transient | None = claim.credentials
        if stored is None:
            return None
        if isinstance(stored, Transient):
            raise stored
        home = asyncio.get_running_loop()

        async def refresh(rejected: str | None, environment: HttpEnvironment) -> Mapping[str, Any]:
            work = self.refresh(stored.connection_id, claim.provider_slug, rejected, environment)
            if asyncio.get_running_loop() is home:
                return await work
            # A plain `def` runs in a thread with its own loop; the pool belongs to the engine's.
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))

        claim.credentials = opened = Credentials(self._vault.open_for_run(stored), refresh)
        return opened

    async def refresh(
        self,
        connection_id: UUID,
        provider_slug: str,
        rejected: str | None,
        environment: HttpEnvironment,
    ) -> Mapping[str, Any]:
        """Return credentials whose access token is neither expired nor the rejected one."""
        gives_up_at, wait = monotonic() + PATIENCE_SECONDS, FIRST_PAUSE
        while True:
            turn = await self._pool.retrying(lambda tx: self._look(tx, connection_id, rejected))
            if turn.is_fresh:
                return turn.values
            if turn.lease is not None:
                return await self._finish(turn, turn.lease, provider_slug, environment)
            if monotonic() > gives_up_at:
                raise Transient("another worker has been refreshing the access token for too long")
            await pause(wait)
            wait = min(LONGEST_PAUSE, 2 * wait)

    async def close(self) -> None:
        """Wait for refreshes that have begun: a token that the provider issued must be stored."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CALL_SECONDS)

    async def _look(self, tx: Transaction, connection_id: UUID, rejected: str | None) -> Turn:
        stored = (await credentials.read(tx, [connection_id])).get(connection_id)
        if stored is None:
            raise Unauthorized("the credentials were removed")
        now = await self._clock.now(tx)
        values = self._vault.open_for_run(stored)
        if values.get("access_token") not in (None, rejected) and not is_expired(values, now):
            return Turn(stored, values, True, None)
        if not is_refreshable(values):
            raise Unauthorized(
                "the access token has expired, and there is nothing to refresh it with"
            )
        lease = uuid4()
        ours = await credentials.begin_refresh(tx, stored, lease, now=now, until=now + LEASE)
        return Turn(stored, values, False, lease if ours else None)

    async def _finish(
        self, turn: Turn, lease: UUID, provider_slug: str, environment: HttpEnvironment
    ) -> Mapping[str, Any]:
        """Refresh in a separate task, which continues if the run that started it is cancelled."""
        work = self._ask_and_store(turn, lease, provider_slug, environment)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: "asyncio.Task[Mapping[str, Any]]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the run that asked may be gone; nobody else needs the error

    async def _ask_and_store(
        self, turn: Turn, lease: UUID, provider_slug: str, environment: HttpEnvironment
    ) -> Mapping[str, Any]:
        from syncline.http.oauth import GrantRefused

        try:
            stored = turn.stored
            spender = Spender(provider_slug, stored.tenant_id, stored.connection_id)
            fresh = await self._ask(turn.values, spender, environment)
        except GrantRefused as refused:
            return await self._newer_than(turn.stored, lease, str(refused))
        except BaseException:
            await self._give_back(turn.stored, lease)
            raise
        if await self._store(turn.stored, fresh):
            return fresh
        return await self._newer_than(turn.stored, lease, "the credentials were replaced")

    async def _ask(
        self, values: Mapping[str, Any], spender: Spender, environment: HttpEnvironment
    ) -> dict[str, Any]:
        from syncline.http.auth import Authentication
        from syncline.http.client import HttpClient
        from syncline.http.oauth import request_token

        address = str(values["token_url"])
        if not address.lower().startswith("https://") and not environment.allow_private:
            raise Permanent("the token_url is not https, so credentials would be sent unencrypted")
        async with HttpClient(
            environment.with_limits(timeout_seconds=CALL_SECONDS),
            spender=spender,
            credentials=values,
            authentication=Authentication(),
        ) as http:
            now = await self._pool.retrying(self._clock.now)
            return await request_token(http, values, now=now)

    async def _store(self, stored: Stored, fresh: Mapping[str, Any]) -> bool:
        """Try to store the token for as long as a lease lasts; return whether that worked."""
        sealed = self._vault.seal(stored.tenant_id, stored.connection_id, fresh)

        async def store(tx: Transaction) -> bool:
            now = await self._clock.now(tx)
            key_id = self._vault.key_id
            return await credentials.finish_refresh(tx, stored, key_id, sealed, now=now)

        gives_up_at = monotonic() + LEASE.total_seconds()
        while True:
            try:
                return await self._pool.retrying(store)
            except Exception as error:
                if not is_passing(error) or monotonic() > gives_up_at:
                    raise
            await pause(LONGEST_PAUSE)

    async def _newer_than(self, stored: Stored, lease: UUID, why: str) -> Mapping[str, Any]:
        """Return credentials that were stored meanwhile, or raise `Unauthorized`."""
        for wait in SECOND_LOOKS:
            await pause(wait)
            found = await self._pool.retrying(
                lambda tx: credentials.read(tx, [stored.connection_id])
            )
            newest = found.get(stored.connection_id)
            if newest is not None and newest.version != stored.version:
                return self._vault.open_for_run(newest)
        await self._give_back(stored, lease)
        raise Unauthorized(f"the provider refused to refresh the access token ({why})")

    async def _give_back(self, stored: Stored, lease: UUID) -> None:
        async def end(tx: Transaction) -> None:
            await credentials.end_refresh(tx, stored.connection_id, lease)

        await self._pool.retrying(end)
