"""How long failed jobs wait, and when a provider is left alone."""

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from syncline.policy.backoff import Backoff
from syncline.policy.breaker import BreakerRules
from syncline.policy.budgets import Budget, Source, check, read_span
from syncline.settings import checks


class ProviderRateLimit(checks.Component):
    """The settings of one provider; the rest is inherited."""

    base_seconds: float | None = Field(None, gt=0, le=86_400)
    max_seconds: float | None = Field(None, gt=0, le=604_800)
    jitter_factor: float | None = Field(None, ge=0, le=10)


class RateLimitSettings(checks.Component):
    """How long failed jobs wait."""

    base_seconds: float = Field(5, gt=0, le=86_400, description="Wait after the first failure.")
    max_seconds: float = Field(900, gt=0, le=604_800, description="Longest wait without a hint.")
    jitter_factor: float = Field(
        0.1, ge=0, le=10, description="Most jitter, as a share of the wait."
    )
    providers: dict[str, ProviderRateLimit] = Field(
        default_factory=dict, description="The same three settings per provider."
    )

    def backoff(self, provider_slug: str) -> Backoff:
        own = self.providers.get(provider_slug) or ProviderRateLimit()
        return Backoff(
            base_seconds=_first(own.base_seconds, self.base_seconds),
            max_seconds=_first(own.max_seconds, self.max_seconds),
            jitter_factor=_first(own.jitter_factor, self.jitter_factor),
        )

    @property
    def longest_backoff(self) -> timedelta:
        """The longest wait of any provider's job, unless the provider asks for more."""
        return max(self.backoff(slug).longest_unasked for slug in ("", *self.providers))


class BreakerSettings(checks.Component):
    """When a provider is taken for down, so that its jobs wait."""

    failing_share: float = Field(
        0.8, gt=0, le=1, description="Share of its attempts that fail as Transient or by timeout."
    )
    attempts: int = Field(20, ge=1, le=1_000_000, description="Least attempts in the window.")
    connections: int = Field(5, ge=1, le=5, description="Least connections of the failed ones.")
    window_seconds: float = Field(60, ge=5, le=3600, description="The window.")
    first_probe_seconds: float = Field(
        30,
        ge=1,
        le=3600,
        description="Time until the first probe; each further one waits twice as long.",
    )
    longest_probe_seconds: float = Field(
        900, ge=1, le=86_400, description="Longest time between two probes."
    )

    @property
    def rules(self) -> BreakerRules:
        return BreakerRules(
            self.failing_share,
            self.attempts,
            self.connections,
            timedelta(seconds=self.window_seconds),
            timedelta(seconds=self.first_probe_seconds),
            timedelta(seconds=self.longest_probe_seconds),
        )


class FairnessSettings(checks.Component):
    """Whether a tenant that asks for more than its share yields to the others."""

    enabled: bool = Field(
        True, description="Whether tenants that ask for more than their share yield to the others."
    )


class BudgetSettings(checks.Component):
    """How many calls may be made in any span of time, by all processes together."""

    scope: str = Field(description="Its name; with {tenant} or {connection}, one for each.")
    calls: int | Literal["unlimited"] = Field(description="Most calls in any such span.")
    per: str | float = Field(description='The span: "1h", "15m", "60s" or seconds.')
    burst: int | None = Field(
        None, description="Most calls at once. Default: a hundredth of the calls."
    )
    providers: list[str] = Field(
        default_factory=list,
        description="Whose calls count. Default: the provider that the scope names.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        check(self.budget)
        return self

    @property
    def budget(self) -> Budget:
        calls = None if self.calls == "unlimited" else self.calls
        per, providers = read_span(self.per), tuple(self.providers)
        return Budget(self.scope, calls, per, self.burst, providers, Source.SETTINGS)


def check_scopes(budgets: list[BudgetSettings]) -> list[BudgetSettings]:
    """Refuse two budgets of the same scope: nobody could tell which one counts."""
    scopes = [budget.scope for budget in budgets]
    for scope in scopes:
        if scopes.count(scope) > 1:
            raise ValueError(f"the scope {scope!r} has two budgets; give each its own scope")
    return budgets


def _first(own: float | None, inherited: float) -> float:
    return inherited if own is None else own
