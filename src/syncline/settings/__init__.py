"""The settings: from arguments, the environment or `syncline.toml`, checked once and frozen."""

import os
import warnings
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnparsedError

from syncline.errors import SettingsError
from syncline.policy.schedule import MINIMUM_INTERVAL_SECONDS, ScheduleRules
from syncline.redaction import mask_secrets
from syncline.sdk.page import PageLimits
from syncline.settings import checks
from syncline.settings.git import GitSettings
from syncline.settings.http import HttpSettings, ProviderSlugs
from syncline.settings.limits import (
    BreakerSettings,
    BudgetSettings,
    FairnessSettings,
    RateLimitSettings,
    check_scopes,
)
from syncline.settings.secret_files import secrets_from_files

TOML_FILE = "syncline.toml"
SHORTEST_DAYS, LONGEST_DAYS = 0.005, 36_500  # seven minutes, which tests need, and a century
Fraction = Annotated[Decimal, Field(ge=0, lt=1)]
SchemaName = Annotated[str, AfterValidator(checks.check_schema)]
ProxyAddresses = Annotated[
    list[str],
    NoDecode,
    BeforeValidator(checks.split_names),
    AfterValidator(checks.check_networks),
]
ModuleNames = Annotated[list[str], NoDecode, BeforeValidator(checks.split_names)]
Concurrency = Annotated[int | Literal["auto"], BeforeValidator(checks.read_concurrency)]
Slugs = Annotated[list[str] | None, NoDecode, BeforeValidator(checks.split_names)]


class SchedulerSettings(checks.Component):
    """When connections run."""

    tick_interval_seconds: float = Field(60, ge=1, le=300, description="Time between two ticks.")
    lookahead_seconds: float | None = Field(
        None,
        ge=0,
        le=3600,
        description="How far ahead runs are queued. Default: the larger of 60 and the tick.",
    )
    default_interval_seconds: int = Field(
        900, description="Interval of connections without their own."
    )
    jitter_pct_min: Fraction = Field(Decimal(0), description="Least jitter, as a share.")
    jitter_pct_max: Fraction = Field(Decimal("0.2"), description="Most jitter, as a share.")
    max_overridden_interval_seconds: int = Field(
        86400,
        ge=MINIMUM_INTERVAL_SECONDS,
        le=31_536_000,
        description="Longest interval that a connection may have.",
    )
    batch_size: int = Field(
        1000, ge=1, le=10_000, description="Connections planned per transaction."
    )

    @model_validator(mode="after")
    def _bounds_agree(self) -> "SchedulerSettings":
        lowest, default = MINIMUM_INTERVAL_SECONDS, self.default_interval_seconds
        highest = self.max_overridden_interval_seconds
        if self.jitter_pct_min > self.jitter_pct_max:
            checks.disagree(
                f"jitter_pct_min is {self.jitter_pct_min}; "
                f"it must be from 0 to jitter_pct_max ({self.jitter_pct_max})"
            )
        if not lowest <= default <= highest:
            checks.disagree(
                f"default_interval_seconds is {default}; "
                f"it must be from {lowest} to max_overridden_interval_seconds ({highest})"
            )
        return self

    @property
    def tick_interval(self) -> timedelta:
        return timedelta(seconds=self.tick_interval_seconds)

    @property
    def lookahead(self) -> timedelta:
        if self.lookahead_seconds is not None:
            return timedelta(seconds=self.lookahead_seconds)
        return timedelta(seconds=max(60, self.tick_interval_seconds))

    @property
    def rules(self) -> ScheduleRules:
        return ScheduleRules(
            default_interval=timedelta(seconds=self.default_interval_seconds),
            maximum_interval=timedelta(seconds=self.max_overridden_interval_seconds),
            jitter_pct_min=self.jitter_pct_min,
            jitter_pct_max=self.jitter_pct_max,
        )


class ExecutorSettings(checks.Component):
    """How jobs run."""

    concurrency: Concurrency = Field("auto", description="Jobs that this process runs at once.")
    poll_interval_seconds: float = Field(
        0.5, gt=0, le=60, description="Longest pause between two checks for due jobs."
    )
    lease_seconds: float = Field(
        30, ge=3, le=3600, description="Life of a claim that is not renewed."
    )
    max_run_seconds: float = Field(300, ge=1, le=86_400, description="Longest run of a job.")
    max_attempts: int | None = Field(
        None, ge=1, description="Failures after which a job fails for good. Default: no limit."
    )
    single_flight: Literal["connection", "job_type"] = Field(
        "connection",
        description="What runs one job at a time: a connection or a job type.",
    )
    shutdown_grace_seconds: float = Field(
        30, ge=0, le=3600, description="Time that running jobs get to finish at shutdown."
    )
    max_payload_bytes: int = Field(1_000_000, ge=1, description="Largest payload of a signal.")
    max_cursor_bytes: int = Field(64_000, ge=1, description="Largest cursor.")
    max_page_signals: int = Field(100_000, ge=1, description="Most signals in a page.")
    max_page_bytes: int = Field(256_000_000, ge=1, description="Largest page, payloads together.")

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @property
    def page_limits(self) -> PageLimits:
        return PageLimits(
            payload_bytes=self.max_payload_bytes,
            cursor_bytes=self.max_cursor_bytes,
            page_signals=self.max_page_signals,
            page_bytes=self.max_page_bytes,
        )


class ApiSettings(checks.Component):
    """Where the API, the dashboard, health and metrics are served, and to whom."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to bind.")
    port: int = Field(8080, ge=0, le=65_535, description="Port to bind; 0 takes a free one.")
    hosts: ModuleNames = Field(
        default_factory=list, description="Other host names, such as that of a proxy."
    )
    tenant_providers: Slugs = Field(
        None,
        description="Providers that tenants' keys may connect. Default: all that are not local.",
    )
    key_days: int = Field(
        365, ge=1, le=3650, description="Days until a key expires, unless it has its own limit."
    )
    trusted_proxies: ProxyAddresses = Field(
        default_factory=list, description="Proxies whose X-Forwarded-For names the client."
    )
    requests_per_second: float = Field(
        100, gt=0, le=1_000_000, description="Requests of one key, on average."
    )
    burst: int = Field(1000, ge=1, le=1_000_000, description="Requests of one key in a burst.")
    address_requests_per_second: float = Field(
        50,
        gt=0,
        le=1_000_000,
        description="The same for an address without a valid key.",
    )
    address_burst: int = Field(
        500,
        ge=1,
        le=1_000_000,
        description="Its requests in a burst.",
    )
    failed_logins_per_minute: int = Field(
        10, ge=1, le=10_000, description="Wrong keys from one address before it must wait."
    )
    concurrent_requests: int | None = Field(
        None, ge=1, le=500, description="Requests of one caller that run at once."
    )
    concurrent_streams: int = Field(
        20, ge=1, le=10_000, description="Streams and waiting requests of one caller."
    )
    max_clients: int = Field(500, ge=1, le=100_000, description="Open sockets in all.")
    max_clients_per_address: int = Field(
        100, ge=1, le=100_000, description="Open sockets of one address."
    )
    max_connections_per_tenant: int | None = Field(
        None, ge=1, description="Connections that a tenant's key may create. Default: no limit."
    )
    max_stored_bytes_per_tenant: int | None = Field(
        None, ge=1, description="Bytes of signals that a tenant may store. Default: no limit."
    )

    @property
    def key_life(self) -> timedelta:
        return timedelta(days=self.key_days)


class ForeignSettings(checks.Component):
    """How third-party programs run."""

    unsandboxed: ProviderSlugs = Field(
        default_factory=list,
        description="Providers whose programs run without a sandbox; `*` means all.",
    )

    def is_unsandboxed(self, provider_slug: str) -> bool:
        return provider_slug in self.unsandboxed or "*" in self.unsandboxed


class RetentionSettings(checks.Component):
    """How long finished work is kept."""

    jobs_days: float | None = Field(
        14, ge=SHORTEST_DAYS, le=LONGEST_DAYS, description="Days that finished jobs are kept."
    )
    empty_jobs_hours: float | None = Field(
        24,
        ge=24 * SHORTEST_DAYS,
        le=24 * LONGEST_DAYS,
        description="Hours that runs which brought nothing are kept.",
    )
    signals_days: float | None = Field(
        None, ge=SHORTEST_DAYS, le=LONGEST_DAYS, description="Days that signals are kept."
    )
    audit_days: float | None = Field(
        400, ge=SHORTEST_DAYS, le=LONGEST_DAYS, description="Days that the audit is kept."
    )
    first_round_seconds: float = Field(
        60, ge=0, le=3600, description="Time for which a new process runs waiting jobs first."
    )

    @property
    def first_round(self) -> timedelta:
        return timedelta(seconds=self.first_round_seconds)

    @property
    def jobs(self) -> timedelta | None:
        """How long finished jobs are kept; None means for ever."""
        return None if self.jobs_days is None else timedelta(days=self.jobs_days)

    @property
    def empty_jobs(self) -> timedelta | None:
        """How long empty runs are kept: never longer than other jobs."""
        hours = self.empty_jobs_hours
        kept = (self.jobs, None if hours is None else timedelta(hours=hours))
        return min((one for one in kept if one is not None), default=None)

    @property
    def signals(self) -> timedelta | None:
        return None if self.signals_days is None else timedelta(days=self.signals_days)

    @property
    def audit(self) -> timedelta | None:
        return None if self.audit_days is None else timedelta(days=self.audit_days)


class TelemetrySettings(checks.Component):
    """What metrics include."""

    tenant_label: bool = Field(True, description="Whether metrics carry `tenant_id`.")


# Pydantic warns about a field named `schema`, which hides one of its deprecated methods.
warnings.filterwarnings("ignore", message='Field name "schema"', category=UserWarning)


class Settings(BaseSettings):
    """All settings; a bad value raises a `SettingsError` of one line."""

    model_config = SettingsConfigDict(
        env_prefix=checks.PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        toml_file=TOML_FILE,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    database_url: str | None = Field(
        None, description="Postgres to use. Default: the embedded one."
    )
    schema: SchemaName = Field(  # type: ignore[assignment]  # pydantic's own is deprecated
        "syncline", description="Schema that holds the tables."
    )
    scheduler: SchedulerSettings = SchedulerSettings()
    executor: ExecutorSettings = ExecutorSettings()
    rate_limit: RateLimitSettings = RateLimitSettings()
    breaker: BreakerSettings = BreakerSettings()
    fairness: FairnessSettings = FairnessSettings()
    budgets: Annotated[list[BudgetSettings], AfterValidator(check_scopes)] = Field(
        default_factory=list, description="How many calls may be made, by all processes together."
    )
    http: HttpSettings = HttpSettings()
    foreign: ForeignSettings = ForeignSettings()
    git: GitSettings = GitSettings()
    api: ApiSettings = ApiSettings()
    retention: RetentionSettings = RetentionSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    portable: bool = Field(False, description="Leave out every optional Postgres feature.")
    pgbouncer: bool = Field(False, description="The URL is a pooler in transaction mode.")
    listen_url: str | None = Field(None, description="Direct URL for LISTEN beside a pooler.")
    secret_keys: checks.Secret = Field(None, description="Keys that encrypt credentials.")
    pool_size: int = Field(10, ge=2, le=500, description="Database connections of this process.")
    connectors: ModuleNames = Field(default_factory=list, description="Modules with connectors.")

    def __init__(self, **values: Any) -> None:
        checks.refuse_unknown_components(os.environ, Settings)
        values = {**secrets_from_files(os.environ), **values}
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(checks.explain(error, Settings)) from None
        except UnparsedError as error:
            raise SettingsError(checks.explain_unparsed(error)) from None
        except (OSError, ValueError) as error:
            raise SettingsError(f"{TOML_FILE} cannot be read: {error}") from None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Yield what repr() shows: URLs without their passwords."""
        for name, value in super().__repr_args__():
            yield name, mask_secrets(value) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
