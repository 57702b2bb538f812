"""Which providers are known, and what new connections to them must look like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.errors import Invalid
from syncline.sdk.connector import Connector
from syncline.sdk.declarations import (
    Declaration,
    config_problems,
    credential_problem,
    declaration_of,
    unknown_provider,
)
from syncline.services.base import BaseService, ServiceContext
from syncline.store.data import workers
from syncline.store.pool import Transaction


@dataclass(frozen=True, slots=True)
class KnownProviders:
    """The connectors of this process, and the providers that live workers serve."""

    connectors: Mapping[str, Connector]
    elsewhere: frozenset[str]

    def declaration(self, provider: str) -> Declaration | None:
        """Return what is known about a provider; of a worker's, only that it is served."""
        if provider in self.connectors:
            return declaration_of(provider, self.connectors[provider])
        return Declaration(provider, provider) if provider in self.elsewhere else None

    def problems(
        self,
        provider: str,
        config: dict[str, Any] | None = None,
        credentials: dict[str, Any] | None = None,
    ) -> list[Invalid]:
        """Return every rule that a connection breaks: an unknown provider, or wrong fields."""
        connector = self.connectors.get(provider)
        if connector is None:
            known = sorted(self.elsewhere | self.connectors.keys())
            return [] if provider in known else [unknown_provider(provider, known)]
        wrong = credential_problem(connector, credentials)
        found = [] if config is None else list(config_problems(connector, config))
        return found if wrong is None else [*found, wrong]


class Declarations(BaseService):
    def __init__(self, context: ServiceContext, providers: Mapping[str, Connector]) -> None:
        super().__init__(context)
        self._providers = providers

    async def known(self) -> KnownProviders:
        """Return the providers that this process or a live worker serves."""

        async def read(tx: Transaction) -> set[str]:
            silent_since = await self._clock.now(tx) - DEAD_AFTER
            return await workers.served_providers(tx, silent_since=silent_since)

        return KnownProviders(self._providers, frozenset(await self._pool.retrying(read)))
