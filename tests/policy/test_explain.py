"""Each reason why a connection is, or is not, running, from the evidence that leads to it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.world import at
from syncline.model import ConnectionStatus, Worker
from syncline.policy.caps import Cap
from syncline.policy.evidence import Evidence, PendingJob, Reason, StoppingJob
from syncline.policy.explain import explain
from syncline.policy.gates import Gate, TenantPause
from syncline.policy.shares import TenantShare

NOON = at("12:00")
FIRST, SECOND = UUID(int=1), UUID(int=2)


def worker(**changes: Any) -> Worker:
    alive = Worker(
        id=UUID(int=9),
        host="box",
        pid=7,
        version="1",
        roles=("scheduler", "executor"),
        providers=("github",),
        slots=10,
        busy=0,
        stopping=False,
        started_at=NOON,
        beat_at=NOON,
    )
    return replace(alive, **changes)


def job(**changes: Any) -> PendingJob:
    due = PendingJob(
        id=FIRST,
        job_type="incremental",
        status="queued",
        priority=0,
        attempts=0,
        lapses=0,
        scheduled_at=at("11:59"),
        retry_after=None,
        started_at=None,
        slot_at=at("11:58"),
        lease_expires_at=None,
        error=None,
    )
    return replace(due, **changes)


def evidence(*pending: PendingJob, **changes: Any) -> Evidence:
    quiet = Evidence(
        now=NOON,
        connection_id=UUID(int=5),
        tenant_id="acme",
        provider_slug="github",
        status=ConnectionStatus.ACTIVE,
        status_reason=None,
        interval=timedelta(minutes=15),
        complaints=(),
        last_finished_at=at("11:50"),
        last_succeeded_at=at("11:50"),
        next_slot_at=at("12:05"),
        pending=pending,
        stopping=(),
        last_ended=None,
        workers=(worker(),),
        last_tick_at=at("11:59:30"),
        tick_interval=timedelta(seconds=60),
        lookahead=timedelta(seconds=60),
        flight_by_type=False,
    )
    return replace(quiet, **changes)


RUNNING = job(
    id=SECOND,
    job_type="full",
    status="running",
    started_at=at("11:58"),
    lease_expires_at=at("12:00:20"),
)
FAILED = {"class": "Transient", "message": "503"}
PAUSED = {"why": "moving house", "by": "ann", "since": "2025-01-01T10:00:00Z"}
CASES: dict[str, tuple[Evidence, Reason, str]] = {
    "not due": (evidence(), Reason.NOT_DUE, "its next slot is at 2025-01-01 12:05:00Z (in 5 min)"),
    "next tick": (
        evidence(next_slot_at=at("12:00:30")),
        Reason.NEXT_TICK,
        "the next tick queues its job, within 1 min",
    ),
    "no scheduler": (
        evidence(next_slot_at=at("11:00"), last_tick_at=at("11:00"), workers=()),
        Reason.NO_SCHEDULER,
        "the last tick was at 2025-01-01 11:00:00Z (1 h ago)",
    ),
    "no scheduler ever": (
        evidence(next_slot_at=NOON, last_tick_at=None, workers=()),
        Reason.NO_SCHEDULER,
        "none has ever ticked",
    ),
    "scheduled ahead": (
        evidence(job(scheduled_at=at("12:01"), slot_at=at("12:00:30"))),
        Reason.SCHEDULED,
        "starts at 2025-01-01 12:01:00Z (in 1 min)",
    ),
    "jitter": (
        evidence(job(scheduled_at=at("12:01"), slot_at=at("11:59"))),
        Reason.JITTER,
        "Its slot came at 2025-01-01 11:59:00Z (1 min ago)",
    ),
    "backoff": (
        evidence(job(retry_after=at("12:00:30"), attempts=3, error=FAILED)),
        Reason.BACKOFF,
        "has failed 3 times: Transient: 503. It is tried again at 2025-01-01 12:00:30Z (in 30 s)",
    ),
    "rate limited": (
        evidence(job(retry_after=at("12:10"), attempts=1, error={**FAILED, "hinted": True})),
        Reason.RATE_LIMITED,
        "The provider asked for this pause",
    ),
    "a provider that a person has paused": (
        evidence(job(), gate=Gate("github", paused_at=at("11:50"), paused_because="maintenance")),
        Reason.PROVIDER_PAUSED,
        "github was paused at 2025-01-01 11:50:00Z (10 min ago) (maintenance).",
    ),
    "a paused tenant": (
        evidence(tenant_pause=TenantPause("acme", at("11:50"), "until they have paid")),
        Reason.TENANT_PAUSED,
        "Its tenant was paused at 2025-01-01 11:50:00Z (10 min ago) (until they have paid). "
        "`syncline tenants resume`",
    ),
    "a job of a paused tenant": (
        evidence(job(), tenant_pause=TenantPause("acme", at("11:50"))),
        Reason.TENANT_PAUSED,
        "Its queued job stays in the queue until then.",
    ),
    "a provider that is down": (
        evidence(
            job(),
            gate=Gate(
                "github",
                opened_at=at("11:59"),
                opened_because="20 of 20 attempts failed within a minute",
                probe_at=at("12:00:30"),
            ),
        ),
        Reason.PROVIDER_OPEN,
        "20 of 20 attempts failed within a minute. The next probe comes at 2025-01-01 12:00:30Z",
    ),
    "a provider that limits the application": (
        evidence(job(retry_after=at("12:00:30")), gate=Gate("github", closed_until=at("12:00:30"))),
        Reason.BUDGET,
        "github limits this application. All of its connections wait, and may call it again at"
        " 2025-01-01 12:00:30Z (in 30 s).",
    ),
    "a limit that has passed": (
        evidence(job(), gate=Gate("github", closed_until=at("12:00"))),
        Reason.ABOUT_TO_START,
        "claims it within a moment",
    ),
    "a cap that is full": (
        evidence(job(), full_caps=(Cap("acme", "github", 3, NOON),)),
        Reason.CAP,
        "no more jobs may run at once: 3 of this tenant at github.",
    ),
    "a tenant that asks for more than its share": (
        evidence(job(), share=TenantShare("acme", 1, at("12:00:05"), 40_000)),
        Reason.FAIR_SHARE,
        "Its tenant asks for more than its share (40,000 jobs are due)",
    ),
    "single flight": (
        evidence(job(), RUNNING),
        Reason.SINGLE_FLIGHT,
        f"full job {SECOND} has been running since 2025-01-01 11:58:00Z (2 min ago).",
    ),
    "a cancelled run that may still go on": (
        evidence(job(), stopping=(StoppingJob(SECOND, "full", at("12:00:20")),)),
        Reason.STOPPING,
        f"job {SECOND}, which was cancelled, may still call the provider. It starts once the worker"
        " confirms that the cancelled run has stopped, or at 2025-01-01 12:00:20Z (in 20 s).",
    ),
    "a cancelled run of another type, each type for itself": (
        evidence(
            job(),
            stopping=(StoppingJob(SECOND, "full", at("12:00:20")),),
            flight_by_type=True,
        ),
        Reason.ABOUT_TO_START,
        "claims it within a moment",
    ),
    "running beside a job of the future": (
        evidence(job(scheduled_at=at("12:05")), RUNNING),
        Reason.RUNNING,
        f"full job {SECOND} began 2 min ago",
    ),
    "running, each type for itself": (
        evidence(job(), RUNNING, flight_by_type=True),
        Reason.RUNNING,
        "It is running",
    ),
    "running after failures": (
        evidence(replace(RUNNING, attempts=2)),
        Reason.RUNNING,
        "after 2 failures",
    ),
    "lease lapsed": (
        evidence(replace(RUNNING, lease_expires_at=at("11:59"))),
        Reason.LEASE_LAPSED,
        "its lease, which ended at 2025-01-01 11:59:00Z (1 min ago).",
    ),
    "no worker": (
        evidence(job(), workers=(worker(status="dead"), worker(roles=("scheduler",)))),
        Reason.NO_WORKER,
        "has been due since 2025-01-01 11:59:00Z (1 min ago), but no worker is alive (1 died",
    ),
    "only stopping workers": (
        evidence(job(), workers=(worker(status="stopping"),)),
        Reason.NO_WORKER,
        "no worker is alive",
    ),
    "provider unknown": (
        evidence(job(), workers=(worker(providers=("git", "demo")),)),
        Reason.PROVIDER_UNKNOWN,
        "no worker has a connector for 'github'; those alive (1) know demo, git",
    ),
    "provider installed after the worker's start": (
        evidence(job(), workers=(worker(providers=("git", "demo")),)),
        Reason.PROVIDER_UNKNOWN,
        "and restart that worker: it reads what is installed when it starts.",
    ),
    "worker busy": (
        evidence(job(), workers=(worker(busy=10), worker(providers=(), slots=5))),
        Reason.WORKER_BUSY,
        "all 10 slots of the 1 workers that can run it are taken",
    ),
    "suspect": (evidence(job(lapses=2)), Reason.SUSPECT, "lapsed 2 times in a row"),
    "about to start": (evidence(job()), Reason.ABOUT_TO_START, "claims it within a moment"),
    "paused": (
        evidence(status="paused", status_reason=PAUSED),
        Reason.PAUSED,
        "It was paused (moving house, by ann, since 2025-01-01T10:00:00Z)",
    ),
    "paused while it runs": (
        evidence(RUNNING, status="paused"),
        Reason.PAUSED,
        f"Job {SECOND}, which started before, is still running",
    ),
    "needs reauth": (
        evidence(status="needs_reauth", status_reason={"why": "401"}),
        Reason.NEEDS_REAUTH,
        "(401)",
    ),
    "error": (evidence(status="error", status_reason=["odd"]), Reason.ERROR, "(['odd'])"),
    "revoked": (evidence(status="revoked"), Reason.REVOKED, "will not run again"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reason(case: str) -> None:
    given, reason, words = CASES[case]

    found = explain(given)

    assert found.reason == reason
    assert words in found.summary


def test_every_reason_has_a_case() -> None:
    assert {reason for _, reason, _ in CASES.values()} == set(Reason)


def test_the_times_and_the_job_are_told_apart_from_the_words() -> None:
    found = explain(evidence(job(retry_after=at("12:00:30"), attempts=1)))

    assert (found.due_at, found.waits_until) == (at("12:00:30"), at("12:00:30"))
    assert found.waits_for_job == FIRST


def test_the_last_good_sync_and_bad_values_are_told() -> None:
    bad = evidence(last_succeeded_at=None, complaints=("sync.interval_seconds often",))

    summary = explain(bad).summary

    assert "None of its kept jobs has succeeded yet" in summary
    assert "bad value: sync.interval_seconds often" in summary


def test_secrets_in_errors_are_masked() -> None:
    error = {"class": "X", "message": "postgresql://me:hunter2@db and token=abc"}
    found = explain(evidence(job(retry_after=at("12:01"), error=error)))

    assert "hunter2" not in found.summary
    assert "abc" not in found.summary
