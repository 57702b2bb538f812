"""New credentials: checked, encrypted and stored."""

from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.engine.secrets.vault import Vault
from syncline.services.validation import check_credentials
from syncline.store.data import credentials
from syncline.store.data.credentials import Stored
from syncline.store.pool import Transaction


class CredentialWriter:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def check(self, values: dict[str, Any]) -> None:
        """Raise Invalid if they cannot be stored, and SettingsError if no key can encrypt them."""
        check_credentials(values)
        _ = self._vault.key_id  # raises

    async def save(
        self,
        tx: Transaction,
        tenant_id: str,
        connection_id: UUID,
        values: dict[str, Any],
        now: datetime,
    ) -> None:
        self.check(values)
        sealed = self._vault.seal(tenant_id, connection_id, values)
        new = Stored(connection_id, tenant_id, self._vault.key_id, sealed)
        await credentials.save(tx, new, now=now)
