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
    shared_declaration,
    unknown_provider,
    wrong_credentials,
)
from syncline.sdk.json_schema import schema_problems
from syncline.services.base import BaseService, ServiceContext
from syncline.store.data import workers
from syncline.store.pool import Transaction


@dataclass(frozen=True, slots=True)
class KnownProviders:
    """The connectors of this process, and the providers that live workers serve."""

    connectors: Mapping[str, Connector]
    elsewhere: Mapping[str, Declaration]

    def declaration(self, provider: str) -> Declaration | None:
        """Return what a provider's connector declares; None if nobody serves it."""
        if provider in self.connectors:
            return declaration_of(provider, self.connectors[provider])
        return self.elsewhere.get(provider)

    @property
    def names(self) -> list[str]:
        """The providers that somebody serves."""
        return sorted(self.elsewhere.keys() | self.connectors.keys())

    def problems(
        self,
        provider: str,
        config: dict[str, Any] | None = None,
        credentials: dict[str, Any] | None = None,
    ) -> list[Invalid]:
        """Return every rule that a connection breaks: an unknown provider, or wrong fields."""
        connector = self.connectors.get(provider)
        if connector is None:
            return self._problems_elsewhere(provider, config, credentials)
        wrong = credential_problem(connector, credentials)
        found = [] if config is None else list(config_problems(connector, config))
        return found if wrong is None else [*found, wrong]

    def _problems_elsewhere(
        self, provider: str, config: dict[str, Any] | None, credentials: dict[str, Any] | None
    ) -> list[Invalid]:
        declared = self.elsewhere.get(provider)
        if declared is None:
            return [unknown_provider(provider, self.names)]
        broken = () if config is None else schema_problems(config, declared.config_schema, "config")
        found = [Invalid(field, rule) for field, rule in broken]
        wrong = wrong_credentials(declared.auth, credentials)
        return found if wrong is None else [*found, wrong]


class Declarations(BaseService):
    def __init__(self, context: ServiceContext, providers: Mapping[str, Connector]) -> None:
        super().__init__(context)
        self._providers = providers

    async def known(self) -> KnownProviders:
        """Return the providers that this process or a live worker serves."""

        async def read(tx: Transaction) -> dict[str, Any]:
            silent_since = await self._clock.now(tx) - DEAD_AFTER
            return await workers.served_providers(tx, silent_since=silent_since)

        shared = await self._pool.retrying(read)
        elsewhere = {one: shared_declaration(one, told) for one, told in shared.items()}
        return KnownProviders(self._providers, elsewhere)
