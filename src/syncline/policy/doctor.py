"""What is wrong with a database and its workers, and what to do: decided from symptoms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from syncline.model import ApiKey, ApiRole, Worker, WorkerStatus
from syncline.text import span

OLDEST_VERSION = 150_000
OLD_SNAPSHOT = timedelta(minutes=5)
LATE = timedelta(minutes=5)
SKEW = timedelta(seconds=5)
DEAD_SHARE, DEAD_ROWS = 0.2, 20_000
UNFROZEN = 1_000_000_000
KEYS_NAMED = 5


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check; the advice is empty if there is nothing to do."""

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
    """Everything that the checks need, read at `now`."""

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


def diagnose(symptoms: Symptoms) -> list[Diagnosis]:
    """Return the results, in the order in which to fix them."""
    return [
        *_server(symptoms),
        *_settings(symptoms.server),
        _grants(symptoms),
        _api_role(symptoms),
        _skew(symptoms),
        *_workers(symptoms),
        _scheduler(symptoms),
        _queue(symptoms),
        *_bloat(symptoms),
        _snapshots(symptoms),
        _keys(symptoms),
        *_tenant_providers(symptoms),
    ]


def _server(symptoms: Symptoms) -> Iterator[Diagnosis]:
    server = symptoms.server
    is_old = server.version < OLDEST_VERSION
    yield Diagnosis(
        "database version",
        Verdict.BAD if is_old or server.is_standby else Verdict.OK,
        f"Postgres {server.version_text}" + (", a standby" if server.is_standby else ""),
        "Use Postgres 15 or newer."
        if is_old
        else "Point database_url at the primary."
        if server.is_standby
        else "",
    )
    left = server.max_connections - server.used_connections
    yield Diagnosis(
        "database connections",
        Verdict.WARNING if left < symptoms.pool_size + 2 else Verdict.OK,
        f"{server.used_connections} of {server.max_connections} in use",
        ""
        if left >= symptoms.pool_size + 2
        else "One more process may not get its connections: raise max_connections, lower "
        "pool_size, or use a pooler (pgbouncer = true).",
    )
    worn = server.transactions_unfrozen > UNFROZEN
    yield Diagnosis(
        "transaction ids",
        Verdict.BAD if worn else Verdict.OK,
        f"{server.transactions_unfrozen:,} since the oldest unfrozen row",
        "Find out why autovacuum freezes no rows: old snapshots, idle slots, or it is off."
        if worn
        else "",
    )


def _settings(server: Server) -> Iterator[Diagnosis]:
    unsafe = [name for name in ("fsync", "full_page_writes") if server.settings.get(name) == "off"]
    untidy = [name for name in ("autovacuum", "track_counts") if server.settings.get(name) == "off"]
    yield Diagnosis(
        "durability",
        Verdict.BAD if unsafe else Verdict.OK,
        ", ".join(f"{name} = off" for name in unsafe)
        or f"synchronous_commit = {server.settings.get('synchronous_commit')}",
        "A crash of the server may lose all data. Switch them on." if unsafe else "",
    )
    yield Diagnosis(
        "autovacuum",
        Verdict.BAD if untidy else Verdict.OK,
        ", ".join(f"{name} = off" for name in untidy) or "on",
        "Tables will grow without limit. Switch it on." if untidy else "",
    )
    if server.settings.get("default_transaction_read_only") == "on":
        yield Diagnosis(
            "read-only", Verdict.BAD, "transactions are read-only", "Allow this role to write."
        )


def _grants(symptoms: Symptoms) -> Diagnosis:
    missing = symptoms.missing_grants
    return Diagnosis(
        "rights",
        Verdict.WARNING if missing else Verdict.OK,
        f"missing: {', '.join(missing)}"
        if missing
        else "this role has every right that workers need",
        "Grant them to the role that workers use; see Roles in the schema's reference."
        if missing
        else "",
    )


def _api_role(symptoms: Symptoms) -> Diagnosis:
    role, faults = symptoms.api_role, symptoms.role_faults
    name = "row-level security"
    if role.is_off:
        return Diagnosis(name, Verdict.OK, "off on Citus")
    if role.statements:
        return Diagnosis(
            name,
            Verdict.WARNING,
            f"requests run without it: role {role.name} is not ready",
            f"As an administrator run: {'; '.join(role.statements)}; then restart the processes.",
        )
    return Diagnosis(
        name,
        Verdict.BAD if faults else Verdict.OK,
        "; ".join(faults) or f"role {role.name} sees one tenant's rows, and none without a tenant",
        f"The policies of role {role.name} were changed: drop them and run `syncline migrate`."
        if faults
        else "",
    )


def _skew(symptoms: Symptoms) -> Diagnosis:
    seconds = symptoms.skew.total_seconds()
    return Diagnosis(
        "clock skew",
        Verdict.WARNING if abs(symptoms.skew) > SKEW else Verdict.OK,
        f"this host is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the database",
        "Scheduling uses the database's clock and is not affected. Ids and log times of this host "
        "are off: run an NTP client."
        if abs(symptoms.skew) > SKEW
        else "",
    )


def _workers(symptoms: Symptoms) -> Iterator[Diagnosis]:
    alive = [one for one in symptoms.workers if one.status == WorkerStatus.ALIVE]
    able = [one for one in alive if "executor" in one.roles]
    dead = [one for one in symptoms.workers if one.status == WorkerStatus.DEAD]
    slots, busy = sum(one.slots for one in able), sum(one.busy for one in able)
    yield Diagnosis(
        "workers",
        Verdict.OK if able else Verdict.BAD,
        f"{len(alive)} alive, {busy} of {slots} slots busy" if alive else "none is alive",
        "" if able else "Nothing runs: start `syncline run`.",
    )
    if dead:
        who = ", ".join(f"{one.host}:{one.pid}" for one in dead[:5])
        yield Diagnosis(
            "dead workers",
            Verdict.WARNING,
            f"{len(dead)} within a day: {who}",
            "Other workers took over their jobs. Look for the cause in their logs: out of memory?",
        )
    known = {provider for one in able for provider in one.providers}
    unknown = {slug: count for slug, count in symptoms.providers.items() if slug not in known}
    if unknown and able:
        named = ", ".join(
            f"{slug} ({count:,} active connections)" for slug, count in unknown.items()
        )
        yield Diagnosis(
            "providers",
            Verdict.BAD,
            f"no live worker knows {named}",
            "Start a worker with the connector, or pause those connections.",
        )


def _scheduler(symptoms: Symptoms) -> Diagnosis:
    last = symptoms.last_tick_at
    late = last is None or symptoms.now - last > 3 * symptoms.tick_interval
    found = "no scheduler has ticked" if last is None else f"last tick {_ago(symptoms.now - last)}"
    return Diagnosis(
        "scheduler",
        Verdict.BAD if late else Verdict.OK,
        found,
        "Nothing is queued: start `syncline run` without --no-scheduler." if late else "",
    )


def _queue(symptoms: Symptoms) -> Diagnosis:
    waited = symptoms.now - (symptoms.oldest_due_at or symptoms.now)
    late = waited > LATE
    return Diagnosis(
        "queue",
        Verdict.WARNING if late else Verdict.OK,
        f"the oldest due job has waited {span(waited)}" if waited else "nothing due is waiting",
        "Add workers, or raise executor.concurrency if it is a number; see `syncline top`."
        if late
        else "",
    )


def _bloat(symptoms: Symptoms) -> Iterator[Diagnosis]:
    for table in symptoms.tables:
        swollen = table.dead > DEAD_ROWS and table.dead > DEAD_SHARE * (table.live + table.dead)
        vacuumed = table.vacuumed_at
        vacuum = f"vacuumed {_ago(symptoms.now - vacuumed)}" if vacuumed else "not vacuumed yet"
        yield Diagnosis(
            f"table {table.name}",
            Verdict.WARNING if swollen else Verdict.OK,
            f"{table.bytes / 1e6:,.0f} MB, {table.live:,} rows, {table.dead:,} dead; {vacuum}",
            f"Vacuum it (VACUUM ANALYZE {table.name}), and find out why autovacuum did not: old "
            "snapshots, or too few workers."
            if swollen
            else "",
        )


def _snapshots(symptoms: Symptoms) -> Diagnosis:
    old = [one for one in symptoms.open_transactions if one.age > OLD_SNAPSHOT]
    server, advice = symptoms.server, []
    found = [
        f"pid {one.pid} ({one.application or '?'}, {one.state}) for {span(one.age)}" for one in old
    ]
    if old:
        advice.append(
            "End it, or use pg_terminate_backend(pid): dead rows pile up and slow down claims."
        )
    if server.prepared_transactions:
        found.append(f"{server.prepared_transactions} prepared transactions")
        advice.append("Commit or roll back forgotten prepared transactions.")
    if server.idle_slots:
        found.append(f"{server.idle_slots} unused replication slots")
        advice.append("Drop slots that are no longer used.")
    return Diagnosis(
        "old snapshots",
        Verdict.WARNING if found else Verdict.OK,
        "; ".join(found) or "none older than 5 minutes",
        " ".join(advice),
    )


def _keys(symptoms: Symptoms) -> Diagnosis:
    expiring = symptoms.expiring_keys
    named = [
        f"{key.name} ({key.id}) in {span(key.expires_at - symptoms.now)}"
        for key in expiring[:KEYS_NAMED]
        if key.expires_at is not None
    ]
    if len(expiring) > KEYS_NAMED:
        named.append(f"{len(expiring) - KEYS_NAMED} more")
    return Diagnosis(
        "API keys",
        Verdict.WARNING if expiring else Verdict.OK,
        f"expire soon: {', '.join(named)}" if expiring else "none expires soon",
        "Create new ones with `syncline keys create`, hand them out, and revoke the old ones."
        if expiring
        else "",
    )


def _tenant_providers(symptoms: Symptoms) -> Iterator[Diagnosis]:
    alive = [one for one in symptoms.workers if one.status != WorkerStatus.DEAD]
    unconfined = {slug for one in alive for slug in one.not_for_tenants}
    refused = sorted(unconfined.intersection(symptoms.tenant_providers))
    if refused:
        yield Diagnosis(
            "tenants' providers",
            Verdict.WARNING,
            f"api.tenant_providers names {', '.join(refused)}, which a worker cannot confine",
            "Tenants' keys may not connect them. Let every worker confine them, or remove them.",
        )


def _ago(length: timedelta) -> str:
    return f"{span(length)} ago"
