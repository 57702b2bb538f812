"""The operations of the API, each written once for both clients."""

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack, overload
from urllib.parse import quote
from uuid import UUID, uuid4

from syncline.client.answers import (
    Act,
    Action,
    AddedMany,
    Attempt,
    Budget,
    Cap,
    Connection,
    Declaration,
    Explanation,
    Flood,
    History,
    Job,
    Key,
    NewKey,
    Page,
    Pause,
    Provider,
    ProviderPage,
    Signal,
    Stats,
    Tenant,
    Worker,
)
from syncline.client.arguments import (
    AuditFilters,
    BudgetFields,
    Changes,
    ConnectionFilters,
    ConnectionsAction,
    FollowFilters,
    JobFilters,
    JobsAction,
    Json,
    NewConnection,
    NewKeyFields,
    OneConnection,
    PauseFields,
    SignalFilters,
    TenantFilters,
)
from syncline.client.calls import Async, Call, Mode, Noun, Plain, Repeat, listing, operation
from syncline.client.follow import Follower, PlainFollower

T = TypeVar("T")
Id = UUID | str
CONNECTIONS, JOBS, SIGNALS = "/v1/connections", "/v1/jobs", "/v1/signals"


class Connections(Noun[Mode]):
    @listing
    def list(self, **filters: Unpack[ConnectionFilters]) -> Call[Connection]:
        """Iterate over the connections that the filters leave."""
        return _pages(CONNECTIONS, Connection, filters)

    @operation
    def get(self, connection_id: Id) -> Call[Connection]:
        """Return a connection."""
        return Call("GET", _at(CONNECTIONS, connection_id), Connection)

    @operation
    def create(self, **fields: Unpack[OneConnection]) -> Call[Connection]:
        """Add a connection; one with the same key raises `Conflict` with its `existing_id`."""
        query, body = _without(fields, "force")
        return Call("POST", CONNECTIONS, Connection, query, body, _once())

    @operation
    def create_many(
        self, connections: Sequence[NewConnection], *, force: bool = False
    ) -> Call[AddedMany]:
        """Add up to 10,000 connections, all or none. Existing ones stay as they are."""
        body = {"connections": connections}
        return Call("POST", f"{CONNECTIONS}/bulk", AddedMany, {"force": force}, body, _once())

    @operation
    def edit(self, connection_id: Id, **changes: Unpack[Changes]) -> Call[Connection]:
        """Change interval, config or cursor; with `expected`, only the version that you read."""
        query, body = _without(changes, "force")
        expected = body.pop("expected", None)
        path = _at(CONNECTIONS, connection_id)
        return _guarded(Call("PATCH", path, Connection, query, body), expected)

    @operation
    def delete(
        self, connection_id: Id, *, keep_signals: bool = False, expected: str | None = None
    ) -> Call[None]:
        """Delete a connection with its jobs and, unless they are kept, its signals."""
        query = {"keep_signals": keep_signals}
        return _guarded(Call("DELETE", _at(CONNECTIONS, connection_id), None, query), expected)

    @operation
    def pause(
        self, connection_id: Id, *, reason: str | None = None, expected: str | None = None
    ) -> Call[Connection]:
        """Stop scheduling a connection."""
        path = _at(CONNECTIONS, connection_id, "pause")
        return _guarded(Call("POST", path, Connection, {}, {"reason": reason}), expected)

    @operation
    def resume(self, connection_id: Id, *, expected: str | None = None) -> Call[Connection]:
        """Activate a connection again. It continues from its cursor."""
        path = _at(CONNECTIONS, connection_id, "resume")
        return _guarded(Call("POST", path, Connection), expected)

    @operation
    def sync(
        self,
        connection_id: Id,
        *,
        job_type: Literal["incremental", "full"] = "incremental",
        priority: int | None = None,
    ) -> Call[Job]:
        """Sync now, and return the job."""
        path, body = _at(CONNECTIONS, connection_id, "sync"), {"job_type": job_type}
        return Call("POST", path, Job, {}, {**body, "priority": priority}, _once())

    @operation
    def act(self, **fields: Unpack[ConnectionsAction]) -> Call[Action]:
        """Act on all connections that match a filter, or with `preview` count them."""
        return Call("POST", f"{CONNECTIONS}/actions", Action, {}, fields, _once())

    @operation
    def explain(self, connection_id: Id) -> Call[Explanation]:
        """Explain why a connection is, or is not, running now."""
        return Call("GET", _at(CONNECTIONS, connection_id, "explanation"), Explanation)

    @operation
    def set_credentials(
        self, connection_id: Id, credentials: Json, *, force: bool = False
    ) -> Call[Connection]:
        """Replace a connection's credentials. If it needs_reauth, it becomes active again."""
        path, body = _at(CONNECTIONS, connection_id, "credentials"), {"credentials": credentials}
        return Call("PUT", path, Connection, {"force": force}, body)

    @operation
    def forget_credentials(self, connection_id: Id) -> Call[Connection]:
        """Delete a connection's credentials."""
        return Call("DELETE", _at(CONNECTIONS, connection_id, "credentials"), Connection)


class Jobs(Noun[Mode]):
    @listing
    def list(self, **filters: Unpack[JobFilters]) -> Call[Job]:
        """Iterate over the jobs that the filters leave, newest first."""
        return _pages(JOBS, Job, filters)

    @operation
    def act(self, **fields: Unpack[JobsAction]) -> Call[Action]:
        """Retry or cancel all jobs that match a filter, or with `preview` count them."""
        return Call("POST", f"{JOBS}/actions", Action, {}, fields, _once())

    @operation
    def get(self, job_id: Id) -> Call[Job]:
        """Return a job with its failures and its last error."""
        return Call("GET", _at(JOBS, job_id), Job)

    @operation
    def retry(self, job_id: Id) -> Call[Job]:
        """Run a job again now. A job that has ended gets a new job."""
        return Call("POST", _at(JOBS, job_id, "retry"), Job, headers=_once())

    @operation
    def cancel(self, job_id: Id) -> Call[Job]:
        """Cancel a queued or running job."""
        return Call("POST", _at(JOBS, job_id, "cancel"), Job, repeat=Repeat.UNLESS_LOST)

    @listing
    def attempts(self, job_id: Id) -> Call[Attempt]:
        """Iterate over the last failed attempts of a job, the last one first."""
        return _pages(_at(JOBS, job_id, "attempts"), Attempt, {})


class Signals(Noun[Mode]):
    @listing
    def list(self, **filters: Unpack[SignalFilters]) -> Call[Signal]:
        """Iterate over signals by the time they were stored, newest first unless told otherwise."""
        return _pages(SIGNALS, Signal, filters)

    @operation
    def get(self, signal_id: Id) -> Call[Signal]:
        """Return a signal."""
        return Call("GET", _at(SIGNALS, signal_id), Signal)

    @overload
    def follow(
        self: "Signals[Async]", position: str = "start", **filters: Unpack[FollowFilters]
    ) -> Follower: ...
    @overload
    def follow(
        self: "Signals[Plain]", position: str = "start", **filters: Unpack[FollowFilters]
    ) -> PlainFollower: ...
    def follow(self, position: str = "start", **filters: Unpack[FollowFilters]) -> Any:
        """Iterate over signals as they come in, after a position: `start`, `now`, or a stored one.

        It goes on for ever, and reconnects by itself.
        """
        return self._caller.follow(_sized(filters), position)


class Providers(Noun[Mode]):
    @listing
    def list(self) -> Call[Provider]:
        """Iterate over the providers in use, with their health."""
        return _pages("/v1/providers", Provider, {})

    @operation
    def get(self, provider_slug: str) -> Call[Declaration]:
        """Return what a provider's connector declares."""
        return Call("GET", _at("/v1/providers", provider_slug), Declaration)

    @operation
    def floods(self) -> Call[builtins.list[Flood]]:
        """Return the tenants that ask for more than their share now; for operators."""
        return Call("GET", "/v1/providers", ProviderPage, pick=lambda page: page.floods)


class Overview(Noun[Mode]):
    @operation
    def get(self) -> Call[Stats]:
        """Return sums: of everything for an operator, of one tenant's rows for its key."""
        return Call("GET", "/v1/stats", Stats)

    @operation
    def history(
        self, period: Literal["1h", "24h", "7d", "90d"] = "1h", *, provider: str | None = None
    ) -> Call[History]:
        """Return what happened over a period."""
        return Call("GET", "/v1/stats/history", History, {"period": period, "provider": provider})


class Workers(Noun[Mode]):
    @listing
    def list(self) -> Call[Worker]:
        """Iterate over the processes that work, and those that died within a day."""
        return _pages("/v1/workers", Worker, {})


class Tenants(Noun[Mode]):
    @listing
    def list(self, **filters: Unpack[TenantFilters]) -> Call[Tenant]:
        """Iterate over tenants by name, with what is set for them."""
        return _pages("/v1/tenants", Tenant, filters)

    @operation
    def set_weight(self, tenant_id: str, weight: float) -> Call[None]:
        """Set a tenant's weight."""
        body = {"tenant_id": tenant_id, "weight": weight}
        return Call("PUT", "/v1/tenants", None, {}, body)


class Caps(Noun[Mode]):
    @listing
    def list(self) -> Call[Cap]:
        """Iterate over all caps, with how many jobs run under each."""
        return _pages("/v1/caps", Cap, {})

    @operation
    def set(
        self,
        max_running: int | None,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
    ) -> Call[None]:
        """Set the cap of a tenant, a provider, or a tenant at a provider; None removes it."""
        whose = {"tenant_id": tenant_id, "provider_slug": provider_slug}
        return Call("PUT", "/v1/caps", None, {}, {**whose, "max_running": max_running})


class Actions(Noun[Mode]):
    @listing
    def list(self) -> Call[Action]:
        """Iterate over the actions on many of the last 90 days, newest first."""
        return _pages("/v1/actions", Action, {})

    @operation
    def get(self, action_id: Id) -> Call[Action]:
        """Return an action with what it has done so far."""
        return Call("GET", _at("/v1/actions", action_id), Action)

    @operation
    def cancel(self, action_id: Id) -> Call[Action]:
        """Let an action go no further. What it has done stays."""
        return Call("POST", _at("/v1/actions", action_id, "cancel"), Action)


class Pauses(Noun[Mode]):
    @listing
    def list(self) -> Call[Pause]:
        """Iterate over the tenants and providers that are paused."""
        return _pages("/v1/pauses", Pause, {})

    @operation
    def set(self, paused: bool, **whose: Unpack[PauseFields]) -> Call[None]:
        """Pause or resume a whole tenant or provider, connections added later included."""
        return Call("PUT", "/v1/pauses", None, {}, {"paused": paused, **whose})


class Budgets(Noun[Mode]):
    @listing
    def list(self) -> Call[Budget]:
        """Iterate over all budgets, with what is left of those that all share."""
        return _pages("/v1/budgets", Budget, {})

    @operation
    def set(self, scope: str, **fields: Unpack[BudgetFields]) -> Call[Budget]:
        """Set the operator's budget of a scope."""
        return Call("PUT", _at("/v1/budgets", scope), Budget, {}, fields)

    @operation
    def clear(self, scope: str) -> Call[None]:
        """Remove the operator's budget of a scope, or else the one of the settings."""
        return Call("DELETE", _at("/v1/budgets", scope))


class Audit(Noun[Mode]):
    @listing
    def list(self, **filters: Unpack[AuditFilters]) -> Call[Act]:
        """Iterate over who changed what, newest first."""
        return _pages("/v1/audit", Act, filters)


class Keys(Noun[Mode]):
    @listing
    def list(self) -> Call[Key]:
        """Iterate over all keys, expired and revoked ones too."""
        return _pages("/v1/keys", Key, {})

    @operation
    def create(self, **fields: Unpack[NewKeyFields]) -> Call[NewKey]:
        """Create a key. It is never sent again: the server cannot answer twice with the key."""
        return Call("POST", "/v1/keys", NewKey, {}, fields, repeat=Repeat.NEVER)

    @operation
    def revoke(self, key_id: Id) -> Call[Key]:
        """Revoke a key from the next request on, and end its sessions."""
        return Call("DELETE", _at("/v1/keys", key_id), Key)


def _at(path: str, *parts: Id) -> str:
    return "/".join((path, *(quote(str(part), safe="") for part in parts)))


def _pages(path: str, item: type[T], filters: Mapping[str, Any]) -> Call[T]:
    """Return the call for the first page of a listing."""
    return Call("GET", path, Page[item], _sized(filters))  # type: ignore[valid-type]


def _sized(filters: Mapping[str, Any]) -> dict[str, Any]:
    return {"limit" if name == "page_size" else name: one for name, one in filters.items()}


def _without(fields: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return one field as a query, and the others as a body."""
    body = dict(fields)
    return ({name: body.pop(name)} if name in body else {}), body


def _once() -> dict[str, str]:
    """Return a new idempotency key: however often the call is sent, it takes effect once."""
    return {"Idempotency-Key": uuid4().hex}


def _guarded(call: Call[T], expected: str | None) -> Call[T]:
    """Make a call conditional on the version that was read.

    If its answer is lost, it is not sent again: it may itself be the change that it would meet.
    """
    if expected is None:
        return call
    return replace(call, headers={"If-Match": f'"{expected}"'}, repeat=Repeat.UNLESS_LOST)
