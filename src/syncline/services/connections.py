"""What people do with connections: add, list, pause, resume, change and delete them."""

import builtins
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Unpack, overload
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.secrets.vault import Vault
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.errors import Conflict, NotFound
from syncline.model import Connection, ConnectionFilter, ConnectionStatus
from syncline.policy import status
from syncline.policy.audit import Action, changes_of, deletion_of
from syncline.services.base import BaseService, Once, ServiceContext
from syncline.services.connection_filters import KEY_TYPES, ConnectionFilterFields, check_listing
from syncline.services.credentials import CredentialWriter
from syncline.services.edits import CheckedEdit, Edit, Target, check_unchanged, edit_towards
from syncline.services.gates import Gates
from syncline.services.new_connections import (
    Added,
    NewConnection,
    check_new,
    check_tenant_limit,
    find_problem,
    insert_new,
)
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.pauses import PauseOptions, pausing, switch_off, switch_on, write_resumed
from syncline.services.validation import (
    get_connection,
    lock_connection,
)
from syncline.store.data import connections, signals
from syncline.store.data import credentials as stored_credentials
from syncline.store.listings.connections import Place, read_pages
from syncline.store.pool import Transaction

__all__ = ["Added", "Connections", "NewConnection"]

SIGNALS_PER_BATCH = 10_000
ACTIVE = ConnectionStatus.ACTIVE


class Connections(BaseService):
    def __init__(
        self, context: ServiceContext, vault: Vault, files: ConnectorFiles, gates: Gates
    ) -> None:
        super().__init__(context)
        self._gates = gates
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
            inserted = await insert_new(tx, {connection_id: new}, self._credentials, now)
            if not inserted.connections:
                existing_id = inserted.ids.get(new.key)
                raise Conflict(existing_id, reason=f"already has the key {new.key}")
            await check_tenant_limit(tx, {new.tenant_id}, at_most)
            await self._record(tx, *inserted.entries, now=now)
            return inserted.connections[0]

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
        valid = {new_id(): place for place, problem in enumerate(problems) if problem is None}
        to_add = {id_: wanted[place] for id_, place in valid.items()}

        async def insert(tx: Transaction) -> builtins.list[Added]:
            outcomes = [Added(problem=problem) for problem in problems]
            now = await self._clock.now(tx)
            inserted = await insert_new(tx, to_add, self._credentials, now)
            for id_, place in valid.items():
                found_id = inserted.ids[wanted[place].key]
                outcomes[place] = Added(found_id, is_new=found_id == id_)
            if inserted.connections:
                await check_tenant_limit(tx, {new.tenant_id for new in to_add.values()}, at_most)
            await self._record(tx, *inserted.entries, now=now)
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
            inserted = await insert_new(tx, {connection_id: new}, self._credentials, now)
            await self._record(tx, *inserted.entries, now=now)
            if not inserted.connections:
                await self._bring_up_to_date(tx, inserted.ids[new.key], new, now)
            return await get_connection(tx, inserted.ids[new.key], tenant_id)

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
        statuses: Sequence[str] = (),
        **filters: Unpack[ConnectionFilterFields],
    ) -> Listing[Connection]:
        """Return a page of connections, by id, external id or staleness (`ConnectionOrder`)."""
        wanted, chosen = check_listing(ConnectionFilter(**filters), statuses, order)
        check_limit(limit)
        place = read_token(after, chosen, KEY_TYPES[chosen])

        async def read(tx: Transaction) -> builtins.list[tuple[Connection, Place]]:
            return await read_pages(tx, wanted, chosen, after=place, limit=limit + 1)

        found = await self._pool.reading(read)
        page = cut_page(found, limit, lambda last: write_token(chosen, *last[1]))
        return Listing((connection for connection, _ in page), page.next_page)

    @overload
    async def pause(self, connection_id: UUID, **options: Unpack[PauseOptions]) -> Connection: ...

    @overload
    async def pause(
        self, *, provider_slug: str | None = None, **options: Unpack[PauseOptions]
    ) -> None: ...

    async def pause(
        self,
        connection_id: UUID | None = None,
        *,
        provider_slug: str | None = None,
        **options: Unpack[PauseOptions],
    ) -> Connection | None:
        """Stop scheduling: queued jobs are cancelled, and a running one keeps its signals.

        A connection in `needs_reauth` or `error` is so again when it is resumed. Without an id, a
        whole tenant or provider is paused by a switch, which holds for connections added later.
        """
        if connection_id is None:
            await switch_off(self._gates, provider_slug, **options)
            return None
        target = Target(connection_id, options.get("tenant_id"), options.get("expected"))
        write = pausing(options.get("reason"), options.get("by"))
        return await self._write(target, Action.CONNECTIONS_PAUSE, write)

    @overload
    async def resume(
        self, connection_id: UUID, *, tenant_id: str | None = None, expected: str | None = None
    ) -> Connection: ...

    @overload
    async def resume(
        self, *, tenant_id: str | None = None, provider_slug: str | None = None
    ) -> None: ...

    async def resume(
        self,
        connection_id: UUID | None = None,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
        expected: str | None = None,
    ) -> Connection | None:
        """Make a connection active again, with its cursor; the next tick schedules it.

        One that was in `needs_reauth` or `error` when it was paused is so again. Without an id, the
        pause of a whole tenant or provider ends.
        """
        if connection_id is None:
            await switch_on(self._gates, tenant_id, provider_slug)
            return None
        target = Target(connection_id, tenant_id, expected)
        return await self._write(target, Action.CONNECTIONS_RESUME, write_resumed)

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

        async def write(tx: Transaction, _present: Connection, now: datetime) -> None:
            await checked.write(tx, connection_id, now)

        target = Target(connection_id, tenant_id, expected)
        return await self._write(target, Action.CONNECTIONS_EDIT, write)

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

        async def write(tx: Transaction, present: Connection, now: datetime) -> None:
            if credentials is None:
                await stored_credentials.remove(tx, connection_id, now=now)
                return
            tenant = present.tenant_id
            await self._credentials.save(tx, tenant, connection_id, credentials, now)
            before = status.stored_status(present)
            if (after := status.reauthorise(before)) != before:
                await connections.set_statuses(tx, {connection_id: after}, now=now)

        action = Action.CREDENTIALS_CLEAR if credentials is None else Action.CREDENTIALS_SET
        return await self._write(Target(connection_id, tenant_id), action, write, credentials)

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
            await connections.lock(tx, [connection_id])
            found = await connections.get(tx, connection_id, tenant_id)
            if found is None:
                return False
            check_unchanged(found, expected)
            await self._record(tx, deletion_of(found), now=await self._clock.now(tx))
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

    async def _bring_up_to_date(
        self, tx: Transaction, connection_id: UUID, wanted: NewConnection, now: datetime
    ) -> None:
        """Change a connection that exists to what is wanted."""
        await lock_connection(tx, connection_id, wanted.tenant_id)
        before = await get_connection(tx, connection_id, wanted.tenant_id)
        edit = edit_towards(before, wanted.config, wanted.interval_seconds)
        await self._check_edit(edit).write(tx, connection_id, now)
        credentials = wanted.credentials
        if credentials and await stored_credentials.read(tx, [connection_id]):
            credentials = None
        if credentials:
            await self._credentials.save(tx, before.tenant_id, connection_id, credentials, now)
        after = await get_connection(tx, connection_id, wanted.tenant_id)
        entries = changes_of(Action.CONNECTIONS_EDIT, before, after, credentials)
        await self._record(tx, *entries, now=now)

    async def _write(
        self,
        target: Target,
        action: Action,
        write: Callable[[Transaction, Connection, datetime], Awaitable[None]],
        credentials: dict[str, Any] | None = None,
    ) -> Connection:
        """Lock a connection, change it, and record who did what; return what it is then."""

        async def change(tx: Transaction) -> Connection:
            await lock_connection(tx, target.id, target.tenant_id)
            before = await get_connection(tx, target.id, target.tenant_id)
            check_unchanged(before, target.expected)
            now = await self._clock.now(tx)
            await write(tx, before, now)
            after = await get_connection(tx, target.id, target.tenant_id)
            entries = changes_of(action, before, after, credentials)
            await self._record(tx, *entries, now=now)
            return after

        return await self._pool.retrying(change)

    def _check_new(self, new: NewConnection) -> None:
        check_new(new, self._longest_interval)
        if new.credentials is not None:
            self._credentials.check(new.credentials)

    def _check_edit(self, edit: Edit) -> CheckedEdit:
        return edit.check(self._longest_interval, self._settings.executor.max_cursor_bytes)

    @property
    def _longest_interval(self) -> int:
        return self._settings.scheduler.max_overridden_interval_seconds
