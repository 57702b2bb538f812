"""Looks at every commit that changed something, and says what must never be seen."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from simulation.observer import Observer

PENDING, TERMINAL = ("queued", "running"), ("succeeded", "failed", "cancelled", "completed")
# The notes that people leave in the metadata, beside the engine's keys and among them.
# What a worker clears on a job that was cancelled, once its run has stopped.
STOPPED = {"stops_by": None, "stops_token": None}
NOTES = (("note",), ("sync", "note"))

# What changed since the oldest transaction that was open at the last look, the oldest that is open
# now, and the number of jobs. One statement, so one snapshot: whoever waited for the lock of the
# transaction that has just ended commits at any moment, and must be seen now or at the next look.
CHANGES = """
    SELECT 'job' AS kind, j.id, to_jsonb(j)::text AS row FROM syncline.sync_jobs j
     WHERE j.xmin::text::bigint >= $1
     UNION ALL
    SELECT 'connection', c.id, to_jsonb(c)::text FROM syncline.connections c
     WHERE c.xmin::text::bigint >= $1
     UNION ALL
    SELECT 'horizon', NULL, pg_snapshot_xmin(pg_current_snapshot())::text
     UNION ALL
    SELECT 'jobs', NULL, count(*)::text FROM syncline.sync_jobs
"""
STORED = """
    SELECT count(DISTINCT payload -> 'number') AS stored FROM syncline.signals
     WHERE connection_id = $1 AND (payload ->> 'number')::int <= $2
"""


class Broken(Exception):
    """Something was seen that must never be."""


class Auditor:
    """Knows how every job and connection stood after the last commit."""

    def __init__(
        self, observer: Observer, now: Callable[[], datetime], *, cursors_only_advance: bool
    ) -> None:
        self._observer = observer
        self._now = now
        # Where types run side by side, an incremental run may overtake the rest of a full pass.
        self._cursors_only_advance = cursors_only_advance
        self._horizon = 0
        self._jobs: dict[UUID, dict[str, Any]] = {}
        self._connections: dict[UUID, dict[str, Any]] = {}
        self._had_full_pass: set[str] = set()
        self.caps: dict[tuple[str, str], int] = {}  # by tenant and provider; "" means all
        self.commits = 0
        self.lapses = 0

    def look(self) -> None:
        """Compare what the commit changed with what stood there before."""
        self.commits += 1
        changed: dict[str, dict[Any, Any]] = {
            kind: {} for kind in ("job", "connection", "horizon", "jobs")
        }
        for kind, id_, row in self._observer.ask(CHANGES, self._horizon):
            changed[kind][id_] = json.loads(row)
        self._horizon, jobs = changed["horizon"][None], changed["jobs"][None]
        may_go_back = set()
        for id_, job in changed["job"].items():
            before = self._jobs.get(id_)
            self._judge_job(before, job)
            if job["job_type"] == "full":
                self._had_full_pass.add(job["connection_id"])
            # A full pass may overtake a job that has a cursor of its own, and goes on from there.
            is_behind = before is not None and before["cursor"] is not None
            if _brought_a_page(before, job) and (
                job["job_type"] == "full"
                or (is_behind and job["connection_id"] in self._had_full_pass)
            ):
                may_go_back.add(job["connection_id"])
            self._jobs[id_] = job
        if jobs < len(self._jobs):  # before they are judged: a deleted job runs no more
            self._forget_deleted()
        self._judge_company({job["connection_id"] for job in changed["job"].values()})
        if self.caps and changed["job"]:
            self._judge_caps()
        for id_, connection in changed["connection"].items():
            self._judge_connection(self._connections.get(id_), connection, may_go_back)
            self._connections[id_] = connection

    def _judge_job(self, before: dict[str, Any] | None, job: dict[str, Any]) -> None:
        was, is_ = before["status"] if before else None, job["status"]
        if before is None or before == job:
            return
        if was in TERMINAL and before | STOPPED != job:
            self._complain(f"a {was} job changed", before, job)
        counted = job["attempts"] - before["attempts"]
        if was == is_ == "running" and _brought_a_page(before, job) and job["attempts"] == 0:
            counted = 0  # a page that moved on starts the count afresh
        if counted not in ((0, 1) if was == "running" and is_ != "running" else (0,)):
            self._complain(f"an attempt was counted {counted} times", before, job)
        if was == "running" and is_ == "succeeded" and counted:
            self._complain("a success was counted as a failure", before, job)
        if was == "queued" and is_ == "running" and not self._is_due(before):
            self._complain("a job was claimed before it was due", before, job)
        if was == is_ == "running" and before["lease_token"] != job["lease_token"]:
            self._judge_take_over(before, job)

    def _judge_company(self, connections: set[str]) -> None:
        """Complain of two pending jobs of a type, and of two running ones of a flight."""
        seen: dict[tuple[str, ...], dict[str, Any]] = {}
        for job in self._jobs.values():
            if job["status"] in PENDING and job["connection_id"] in connections:
                places = [("pending", job["connection_id"], job["job_type"])]
                if job["status"] == "running":
                    places.append(("running", job["connection_id"], job["flight"]))
                for place in places:
                    if place in seen:
                        self._complain(f"two {place[0]} jobs at once", seen[place], job)
                    seen[place] = job

    def _judge_caps(self) -> None:
        """Complain of more running jobs than a cap allows."""
        running = [job for job in self._jobs.values() if job["status"] == "running"]
        for (tenant, provider), most in self.caps.items():
            under = [
                job
                for job in running
                if tenant in ("", job["tenant_id"]) and provider in ("", job["provider_slug"])
            ]
            if len(under) > most:
                self._complain(f"{len(under)} jobs run, where {most} may", *under)

    def _judge_take_over(self, before: dict[str, Any], job: dict[str, Any]) -> None:
        self.lapses += 1
        if _instant(before["lease_expires_at"]) > self._now():
            self._complain("a lease was taken over before it lapsed", before, job)

    def _is_due(self, job: dict[str, Any]) -> bool:
        times = [job["scheduled_at"], job["retry_after"] or job["scheduled_at"]]
        return max(map(_instant, times)) <= self._now()

    def _judge_connection(
        self, before: dict[str, Any] | None, connection: dict[str, Any], may_go_back: set[str]
    ) -> None:
        after = _cursor(connection)
        if before is not None:
            went_back = after < _cursor(before) and connection["id"] not in may_go_back
            if went_back and self._cursors_only_advance:
                self._complain("the cursor went back", before, connection)
            for path in NOTES:
                if (_note(connection, path) or 0) < (_note(before, path) or 0):
                    self._complain(f"somebody's edit of {path} was lost", before, connection)
        if before is None or after != _cursor(before):
            [(stored,)] = self._observer.ask(STORED, UUID(connection["id"]), after)
            if stored != after:
                self._complain(f"the cursor passed {after - stored} unstored signals", connection)

    def _forget_deleted(self) -> None:
        """Take note of deletions; jobs go with their connections, and in no other way."""
        self._keep_only(self._connections, "connections")
        gone = self._keep_only(self._jobs, "sync_jobs")
        connections = {str(id_) for id_ in self._connections}
        for job in gone:
            if job["connection_id"] in connections:
                self._complain("a job vanished", job)

    def _keep_only(self, known: dict[UUID, dict[str, Any]], table: str) -> list[dict[str, Any]]:
        left = {row["id"] for row in self._observer.ask(f"SELECT id FROM syncline.{table}")}
        return [known.pop(id_) for id_ in list(known) if id_ not in left]

    def _complain(self, what: str, *rows: dict[str, Any]) -> None:
        raise Broken("\n    ".join([what, *map(json.dumps, rows)]))


def _brought_a_page(before: dict[str, Any] | None, job: dict[str, Any]) -> bool:
    """Return whether a page of the job was stored: its last, or one of a stream."""
    if job["status"] == "succeeded":
        return before != job
    return (
        job["status"] == "running"
        and before is not None
        and before["status"] == "running"
        and before["committed_pages"] < job["committed_pages"]
    )


def _cursor(connection: dict[str, Any]) -> int:
    cursor = connection["metadata"]["sync"].get("cursor")
    return cursor["after"] if cursor else 0


def _note(connection: dict[str, Any], path: tuple[str, ...]) -> int | None:
    value = connection["metadata"]
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
