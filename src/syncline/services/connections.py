"""What people do with connections: add, list, pause, resume, change and delete them."""

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.secrets.vault import Vault
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.errors import Conflict, NotFound
from syncline.model import Connection, ConnectionFilter, ConnectionOrder, ConnectionStatus
from syncline.policy import status
from syncline.policy.audit import Action
from syncline.services.base import BaseService, Once, ServiceContext
from syncline.services.credentials import CredentialWriter
from syncline.services.edits import CheckedEdit, Edit, check_unchanged, edit_towards
from syncline.services.new_connections import (
    Added,
    NewConnection,
    build_connection,
    check_new,
    check_tenant_limit,
    find_problem,
)
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.validation import (
    check_choice,
    check_filters,
    check_text,
    get_connection,
    lock_connection,
)
from syncline.store.data import connections, signals
from syncline.store.data import credentials as stored_credentials
from syncline.store.listings.connections import Place, read_page
from syncline.store.pool import Transaction
from syncline.store.queue import jobs
from syncline.text import rfc3339

__all__ = ["Added", "Connections", "NewConnection"]

SIGNALS_PER_BATCH = 10_000
ACTIVE = ConnectionStatus.ACTIVE
KEY_TYPES: dict[ConnectionOrder, type[Any] | None] = {
    ConnectionOrder.ID: None,
    ConnectionOrder.EXTERNAL_ID: str,
    ConnectionOrder.STALENESS: datetime,
}


class ConnectionFilterFields(TypedDict, total=False):
    """Which connections a listing holds; None, or a key left out, stands for any."""

    tenant_id: str | None
    provider_slug: str | None
    status: str | None
    external_id_prefix: str | None


class Connections(BaseService):
    def __init__(self, context: ServiceContext, vault: Vault, files: ConnectorFiles) -> None:
        super().__init__(context)
        self._credentials = CredentialWriter(vault)
        self._files = files

    async def create(
        self,
        *,
        tenant_id: str,
        provider_slug: str,
        external_id: str,
        config: dict[str, Any] | None = None,
        interval_seconds: int | None = None,
        credentials: dict[str, Any] | None = None,
    ) -> Connection:
        """Add an active connection.

        A connection with the same key raises Conflict with its id. Credentials are stored
        encrypted, and no call returns them.
        """
        return await self.add(
            NewConnection(
                tenant_id, provider_slug, external_id, config, interval_seconds, credentials
            )
        )

    async def add(
        self,
        new: NewConnection,
        *,
        at_most: int | None = None,
        once: Once[Connection] | None = None,
    ) -> Connection:
        """Do as `create`; with `at_most`, refuse to give the tenant more connections than that."""
        self._check_new(new)
        connection_id = new_id()

        async def insert(tx: Transaction) -> Connection:
            now = await self._clock.now(tx)
            connection = build_connection(new, connection_id, now)
            existing_id = await connections.insert(tx, connection, now=now)
            if existing_id != connection_id:
                raise Conflict(existing_id, reason=f"already has the key {new.key}")
            if new.credentials is not None:
                await self._credentials.save(tx, new.tenant_id, connection_id, new.credentials, now)
            await check_tenant_limit(tx, {new.tenant_id}, at_most)
            return connection

        return await self._change(insert, once)

    async def create_many(
        self,
        wanted: Sequence[NewConnection],
        *,
        all_or_none: bool = False,
        at_most: int | None = None,
        once: Once[builtins.list[Added]] | None = None,
    ) -> builtins.list[Added]:
        """Add those that are valid and do not exist; return what became of each, in order.

        With `all_or_none`, one that is not valid raises Invalid, and none is added. With `at_most`,
        none is added if a tenant got more connections than that.
        """
        problems = [find_problem(new, self._longest_interval) for new in wanted]
        for place, problem in enumerate(problems):
            if all_or_none and problem is not None:
                raise problem.within(f"connections[{place}]")
        valid = {place: new for place, new in enumerate(wanted) if problems[place] is None}
        ids = {place: new_id() for place in valid}

        async def insert(tx: Transaction) -> builtins.list[Added]:
            outcomes = [Added(problem=problem) for problem in problems]
            now = await self._clock.now(tx)
            built = [build_connection(new, ids[place], now) for place, new in valid.items()]
            found = await connections.insert_many(tx, built, now=now)
            for place, new in valid.items():
                id_ = found[new.key]
                outcomes[place] = Added(id_, is_new=id_ == ids[place])
                if new.credentials is not None and id_ == ids[place]:
                    await self._credentials.save(tx, new.tenant_id, id_, new.credentials, now)
            if any(outcome.is_new for outcome in outcomes):
                await check_tenant_limit(tx, {new.tenant_id for new in valid.values()}, at_most)
            return outcomes

        return await self._change(insert, once)

    async def ensure(
        self,
        *,
        tenant_id: str,
        provider_slug: str,
        external_id: str,
        config: dict[str, Any] | None = None,
        interval_seconds: int | None = None,
        credentials: dict[str, Any] | None = None,
    ) -> Connection:
        """Add a connection, or update the config and interval of the one with this key.

        An application can state its connections at each start. Arguments that are left out, and the
        status, stay as they are. Credentials are stored only if there are none: those in the
        database may have been refreshed since.
        """
        new = NewConnection(
            tenant_id, provider_slug, external_id, config, interval_seconds, credentials
        )
        self._check_new(new)
        connection_id = new_id()

        async def insert_or_edit(tx: Transaction) -> Connection:
            now = await self._clock.now(tx)
            built = build_connection(new, connection_id, now)
            found_id = await connections.insert(tx, built, now=now)
            await lock_connection(tx, found_id, tenant_id)
            found = await get_connection(tx, found_id, tenant_id)
            edit = edit_towards(found, config, interval_seconds)
            await self._check_edit(edit).write(tx, found_id, now)
            if credentials is not None and not await stored_credentials.read(tx, [found_id]):
                await self._credentials.save(tx, tenant_id, found_id, credentials, now)
            return await get_connection(tx, found_id, tenant_id)

        return await self._change(insert_or_edit)

    async def get(self, connection_id: UUID, *, tenant_id: str | None = None) -> Connection:
        async def read(tx: Transaction) -> Connection:
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(read)

    async def list(
        self,
        *,
        order: str | None = None,
        after: str | None = None,
        limit: int = 100,
        **filters: Unpack[ConnectionFilterFields],
    ) -> Listing[Connection]:
        """Return a page of connections, by id, external id or staleness (`ConnectionOrder`)."""
        wanted = ConnectionFilter(**filters)
        chosen = _check_listing(wanted, order)
        check_limit(limit)
        place = read_token(after, chosen, KEY_TYPES[chosen])

        async def read(tx: Transaction) -> builtins.list[tuple[Connection, Place]]:
            return await read_page(tx, wanted, chosen, after=place, limit=limit + 1)

        found = await self._pool.reading(read)
        page = cut_page(found, limit, lambda last: write_token(chosen, *last[1]))
        return Listing((connection for connection, _ in page), page.next_page)

    async def pause(
        self,
        connection_id: UUID,
        *,
        reason: str | None = None,
        by: str | None = None,
        tenant_id: str | None = None,
        expected: str | None = None,
    ) -> Connection:
        """Stop scheduling: queued jobs are cancelled, and a running one keeps its signals.

        A connection in `needs_reauth` or `error` is so again when it is resumed.
        """
        if reason is not None:
            check_text("reason", reason)

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            if locked.status == ConnectionStatus.REVOKED:
                raise Conflict(connection_id, reason="is revoked and cannot be paused")
            before = await get_connection(tx, connection_id, tenant_id)
            now = await self._clock.now(tx)
            present = (await connections.read_statuses(tx, [connection_id]))[connection_id]
            paused = status.pause(present, why=reason or "paused", since=rfc3339(now), by=by)
            await connections.set_statuses(tx, {connection_id: paused}, now=now)
            await jobs.cancel_queued(tx, [connection_id], now=now)
            after = await get_connection(tx, connection_id, tenant_id)
            await self._record_change(tx, Action.CONNECTIONS_PAUSE, before, after)
            return after

        return await self._pool.retrying(change)

    async def resume(
        self, connection_id: UUID, *, tenant_id: str | None = None, expected: str | None = None
    ) -> Connection:
        """Make a connection active again, with its cursor; the next tick schedules it.

        One that was in `needs_reauth` or `error` when it was paused is so again.
        """

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            if locked.status == ConnectionStatus.REVOKED:
                raise Conflict(connection_id, reason="is revoked and cannot be resumed")
            if locked.status != ACTIVE:
                now = await self._clock.now(tx)
                present = (await connections.read_statuses(tx, [connection_id]))[connection_id]
                resumed = {connection_id: status.resume(present)}
                await connections.set_statuses(tx, resumed, now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def set_interval(
        self, connection_id: UUID, interval_seconds: int | None, *, tenant_id: str | None = None
    ) -> Connection:
        """Change the interval; None goes back to the default. The next tick applies it."""
        return await self.edit(connection_id, Edit(interval_seconds), tenant_id=tenant_id)

    async def set_config(
        self, connection_id: UUID, config: dict[str, Any], *, tenant_id: str | None = None
    ) -> Connection:
        """Replace the config; the next run uses it."""
        return await self.edit(connection_id, Edit(config=config), tenant_id=tenant_id)

    async def set_cursor(
        self, connection_id: UUID, cursor: Any, *, tenant_id: str | None = None
    ) -> Connection:
        """Change where the next run starts; None starts from the beginning.

        A run in progress keeps its signals, but not its cursor.
        """
        return await self.edit(connection_id, Edit(cursor=cursor), tenant_id=tenant_id)

    async def edit(
        self,
        connection_id: UUID,
        edit: Edit,
        *,
        tenant_id: str | None = None,
        expected: str | None = None,
    ) -> Connection:
        """Make the changes of an edit together; `expected` is the version that the caller read."""
        checked = self._check_edit(edit)

        async def change(tx: Transaction) -> Connection:
            await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            await checked.write(tx, connection_id, await self._clock.now(tx))
            return await get_connection(tx, connection_id, tenant_id)

        return await self._change(change)

    async def set_credentials(
        self,
        connection_id: UUID,
        credentials: dict[str, Any] | None,
        *,
        tenant_id: str | None = None,
    ) -> Connection:
        """Replace a connection's credentials, or delete them with None.

        New ones make a connection in `needs_reauth` active again, with its cursor. One that was
        paused in `needs_reauth` stays paused, and is active when it is resumed.
        """

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            now = await self._clock.now(tx)
            if credentials is None:
                await stored_credentials.remove(tx, connection_id, now=now)
            else:
                tenant = locked.tenant_id
                await self._credentials.save(tx, tenant, connection_id, credentials, now)
                present = (await connections.read_statuses(tx, [connection_id]))[connection_id]
                if (after := status.reauthorise(present)) != present:
                    await connections.set_statuses(tx, {connection_id: after}, now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def delete(
        self,
        connection_id: UUID,
        *,
        keep_signals: bool = False,
        tenant_id: str | None = None,
        expected: str | None = None,
    ) -> None:
        """Delete a connection with its jobs, and with its signals unless they are to be kept.

        If it is interrupted, call it again: it then deletes the signals that are left.
        """

        async def remove(tx: Transaction) -> bool:
            locked = await connections.lock(tx, [connection_id])
            found = locked.get(connection_id)
            if found is None or tenant_id not in (None, found.tenant_id):
                return False
            await check_unchanged(tx, connection_id, expected)
            return await connections.delete(tx, connection_id)

        async def remove_signals(tx: Transaction) -> int:
            return await signals.delete_batch(tx, connection_id, tenant_id, limit=SIGNALS_PER_BATCH)

        found = await self._pool.retrying(remove)
        if found:
            await self._files.forget(connection_id)
        while not keep_signals and await self._pool.retrying(remove_signals) > 0:
            found = True
        if not found:
            raise NotFound("connection", connection_id)

    def _check_new(self, new: NewConnection) -> None:
        check_new(new, self._longest_interval)
        if new.credentials is not None:
            self._credentials.check(new.credentials)

    def _check_edit(self, edit: Edit) -> CheckedEdit:
        return edit.check(self._longest_interval, self._settings.executor.max_cursor_bytes)

    @property
    def _longest_interval(self) -> int:
        return self._settings.scheduler.max_overridden_interval_seconds


def _check_listing(wanted: ConnectionFilter, order: str | None) -> ConnectionOrder:
    """Check the filters and return the order."""
    if wanted.status is not None:
        check_choice("status", wanted.status, ConnectionStatus)
    check_filters(
        tenant_id=wanted.tenant_id,
        provider_slug=wanted.provider_slug,
        external_id_prefix=wanted.external_id_prefix,
    )
    chosen = ConnectionOrder.ID if order is None else order
    check_choice("order", chosen, ConnectionOrder)
    return ConnectionOrder(chosen)
