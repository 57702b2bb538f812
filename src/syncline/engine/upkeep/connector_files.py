"""Remove connectors' files on this host when their connections are deleted."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

from syncline.sdk.connector import Connector
from syncline.store.data import connections
from syncline.store.pool import Pool, Transaction


class ConnectorFiles:
    """Removes files of deleted connections.

    Another process, another host or a person may delete a connection. Each process therefore
    checks regularly which of its local files have no connection any more.
    """

    def __init__(self, pool: Pool, providers: Mapping[str, Connector]) -> None:
        self._pool = pool
        self._connectors = [one for one in providers.values() if isinstance(one, Connector)]

    async def forget(self, connection_id: UUID) -> None:
        """Remove the files of a connection that was just deleted."""
        if any(connection_id in one.connections_with_files() for one in self._connectors):
            await asyncio.to_thread(self._forget, {connection_id})

    async def sweep(self) -> None:
        """Remove the files of every connection that no longer exists."""
        kept = {id_ for one in self._connectors for id_ in one.connections_with_files()}
        if not kept:
            return

        async def read(tx: Transaction) -> set[UUID]:
            return await connections.existing(tx, sorted(kept))

        gone = kept - await self._pool.retrying(read)
        if gone:
            await asyncio.to_thread(self._forget, gone)

    def _forget(self, connection_ids: set[UUID]) -> None:
        for connector in self._connectors:
            connector.forget(connection_ids)
