"""What connections sign in with: stored sealed, given to runs, returned to nobody."""

from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.engine.secrets.vault import Vault
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.model import Connection, ConnectionStatus
from syncline.services.base import BaseService, ServiceContext
from syncline.services.validation import check_credentials, get_connection, lock_connection
from syncline.store.data import connections, credentials
from syncline.store.pool import Transaction


class ConnectionCredentials(BaseService):
    def __init__(
        self,
        context: ServiceContext,
        vault: Vault,
        files: ConnectorFiles,
    ) -> None:
        super().__init__(context)
        self._vault = vault
        self._files = files

    async def set_credentials(
        self,
        connection_id: UUID,
        credentials: dict[str, Any] | None,
        *,
        tenant_id: str | None = None,
    ) -> Connection:
        """Change what a connection signs in with, or forget it with None.

        New ones make a connection in `needs_reauth` active again, with its cursor.
        """

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            now = await self._clock.now(tx)
            await self._put(tx, locked.tenant_id, connection_id, credentials, now)
            if credentials is not None and locked.status == ConnectionStatus.NEEDS_REAUTH:
                resumed = (connection_id, ConnectionStatus.ACTIVE, None)
                await connections.set_status(tx, [resumed], now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    def _check_credentials(self, values: dict[str, Any] | None) -> None:
        """Refuse credentials that cannot be stored: bad ones, or any where there is no key."""
        if values is not None:
            check_credentials(values)
            _ = self._vault.key_id

    async def _put(
        self,
        tx: Transaction,
        tenant_id: str,
        connection_id: UUID,
        values: dict[str, Any] | None,
        now: datetime,
    ) -> None:
        self._check_credentials(values)
        if values is None:
            await credentials.remove(tx, connection_id, now=now)
        else:
            sealed = self._vault.seal(tenant_id, connection_id, values)
            key_id = self._vault.key_id
            await credentials.save(tx, connection_id, tenant_id, key_id, sealed, now)
