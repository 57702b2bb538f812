"""What a diagnosis rests on, and what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from syncline.model import ApiKey, ApiRole, Worker


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at; the advice is empty where there is nothing to do."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    version: int
    version_text: str
    max_connections: int
    used_connections: int
    transactions_unfrozen: int
    is_standby: bool
    prepared_transactions: int
    idle_slots: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableHealth:
    name: str
    live: int
    dead: int
    vacuumed_at: datetime | None
    bytes: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    pid: int
    application: str
    state: str
    age: timedelta


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Everything that was looked at, at `now`."""

    now: datetime
    server: Server
    skew: timedelta
    tables: Sequence[TableHealth]
    open_transactions: Sequence[OpenTransaction]
    missing_grants: Sequence[str]
    api_role: ApiRole
    role_faults: Sequence[str]
    workers: Sequence[Worker]
    providers: Mapping[str, int]
    last_tick_at: datetime | None
    tick_interval: timedelta
    oldest_due_at: datetime | None
    pool_size: int
    expiring_keys: Sequence[ApiKey] = ()
    tenant_providers: Sequence[str] = ()
