"""E5 of the specification: what each failure leads to, and how long its job waits."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.model import Job

NOW = at("12:00")
DAY = 86_400
ALMOST_ONE = 1 - 2**-53
OVERRIDE = {"providers": {"github": {"base_seconds": 2, "max_seconds": 7, "jitter_factor": 1}}}


async def fail(world: World, error: BaseException, attempts: int = 0) -> Job:
    """Return the job after its attempt ended with the error."""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=attempts)
    world.script(error)
    assert await world.run_due() == 1
    return await world.get_job(job_id)


def waited(job: Job) -> float:
    assert job.retry_after is not None
    return (job.retry_after - NOW).total_seconds()


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 5), (1, 10), (7, 640), (2**31 - 2, 900)])
async def test_backoff_doubles_up_to_its_limit(world: World, attempts: int, seconds: int) -> None:
    """E5: `min(5 · 2^attempts, 900)` and up to a tenth more; thousands of attempts work."""
    world.dice.value = 0.0
    shortest = await fail(world, Transient("down"), attempts)
    world.dice.value = ALMOST_ONE
    longest = await fail(world, Transient("down"), attempts)

    assert (shortest.status, shortest.attempts) == ("queued", attempts + 1)
    assert waited(shortest) == seconds
    assert waited(longest) == pytest.approx(seconds * 1.1, abs=0.001)
    assert waited(longest) <= seconds * 1.1


@pytest.mark.engine(rate_limit={"jitter_factor": 0})
async def test_backoff_without_jitter(world: World) -> None:
    """E5: a factor of 0 works."""
    world.dice.value = ALMOST_ONE

    assert waited(await fail(world, Transient("down"), attempts=3)) == 40


@pytest.mark.engine(rate_limit=OVERRIDE)
async def test_backoff_can_be_set_for_a_provider(world: World) -> None:
    """E5: base, maximum and factor are overridable per provider."""
    waits = [waited(await fail(world, Transient("down"), attempts)) for attempts in (0, 1, 2)]

    assert waits == [3, 6, 10.5]


@pytest.mark.engine(rate_limit={"jitter_factor": 0, "providers": {"github": {"base_seconds": 2}}})
async def test_provider_inherits_what_it_does_not_set(world: World) -> None:
    """E5: an override of one number leaves the others."""
    assert waited(await fail(world, Transient("down"), 20)) == 900


HINTS: list[tuple[Any, float]] = [
    (60, 60),
    (0.5, 5),
    (7.25, 7.25),
    (DAY, DAY),
    (10 * DAY, DAY),
    (float("inf"), DAY),
    (10**400, DAY),
    (None, 5),
    (float("nan"), 5),
    (-60, 5),
    (0, 5),
    ("60", 60),
    ("soon", 5),
    (True, 5),
    ([60], 5),
]


@pytest.mark.parametrize(("hint", "seconds"), HINTS, ids=range(len(HINTS)))
@pytest.mark.engine(rate_limit={"jitter_factor": 0})
async def test_hint_is_the_least_to_wait(world: World, hint: Any, seconds: float) -> None:
    """E5, E7: `max(exp, hint)`, where a hint is a number of seconds, of 24 hours at most."""
    job = await fail(world, RateLimited("slow down", retry_after_seconds=hint))

    assert (job.status, job.attempts, waited(job)) == ("queued", 1, seconds)


async def test_hint_is_jittered_too(world: World) -> None:
    """E5: the jitter is a share of the effective wait."""
    world.dice.value = 0.5

    assert waited(await fail(world, RateLimited(retry_after_seconds=600))) == 630


async def test_error_is_recorded(world: World) -> None:
    """E5: class, message, attempt, time, hint, details."""
    error = RateLimited("slow down", retry_after_seconds=60, details={"limit": 5000})

    job = await fail(world, error, attempts=2)

    assert job.error["class"] == "RateLimited"
    assert (job.error["message"], job.error["attempt"]) == ("slow down", 3)
    assert job.error["time"] == "2025-01-01T12:00:00Z"
    assert (job.error["hint"], job.error["details"]) == (60, {"limit": 5000})


class OfItsOwn(Transient):
    """A connector's own kind of error."""


async def test_anything_unexpected_is_retried(world: World) -> None:
    """E5: requeued without limit, with the class that says what happened."""
    errors: list[tuple[BaseException, str]] = [
        (RateLimited(), "RateLimited"),
        (Transient("down"), "Transient"),
        (OfItsOwn("down"), "OfItsOwn"),
        (SyncError("hm"), "SyncError"),
        (TimeoutError("slow"), "Timeout"),
        (ValueError("bug"), "Unexpected"),
        (ZeroDivisionError(), "Unexpected"),
        (SystemExit(3), "Unexpected"),
        (KeyboardInterrupt(), "Unexpected"),
        (asyncio.CancelledError(), "ContractError"),
        (MemoryError(), "Unexpected"),
        (StopAsyncIteration(), "Unexpected"),
    ]
    for error, class_ in errors:
        job = await fail(world, error, attempts=999)

        assert (job.status, job.attempts, job.error["class"]) == ("queued", 1000, class_)
        assert waited(job) >= 900
    assert {one.status for one in await world.engine.connections.list()} == {"active"}


@pytest.mark.engine(executor={"max_attempts": 3})
async def test_last_of_limited_attempts_ends_the_job(world: World) -> None:
    """E5: with `max_attempts` set, the last failure ends in `failed`, the connection stays."""
    again = await fail(world, Transient("down"), attempts=1)
    ended = await fail(world, Transient("down"), attempts=2)

    assert (again.status, ended.status) == ("queued", "failed")
    assert (ended.finished_at, ended.retry_after) == (NOW, None)
    assert ended.error["attempt"] == 3
    connection = await world.engine.connections.get(ended.connection_id)
    assert (connection.status, connection.status_reason) == ("active", None)
    await world.tick("12:15", jitter_seconds=0)
    assert (await world.pending(connection)).scheduled_at == at("12:15")


@pytest.mark.parametrize(
    ("error", "status"),
    [(Permanent("account closed"), "error"), (Unauthorized("token expired"), "needs_reauth")],
    ids=repr,
)
async def test_failure_that_stops_the_connection(
    world: World, error: SyncError, status: str
) -> None:
    """E5: ends in `failed`, stores the reason, and nothing is scheduled until it is resumed."""
    job = await fail(world, error)

    connection = await world.engine.connections.get(job.connection_id)
    assert (job.status, job.finished_at, job.retry_after) == ("failed", NOW, None)
    assert (connection.status, connection.status_reason["why"]) == (status, error.message)
    assert connection.status_reason["since"] == "2025-01-01T12:00:00Z"
    assert connection.status_reason["evidence"]["job_id"] == str(job.id)
    assert (await world.tick("15:00")).scheduled == 0
    resumed = await world.engine.connections.resume(connection.id)
    assert (resumed.status, resumed.status_reason) == ("active", None)
    await world.tick("15:05", jitter_seconds=0)
    assert (await world.pending(connection)).scheduled_at == at("15:00")


@pytest.mark.engine(rate_limit={"jitter_factor": 0})
async def test_each_claim_sets_started_at_and_nothing_clears_it(world: World) -> None:
    """E5: `started_at` is that of the last claim."""
    job_id = await world.job(await world.connection())
    started = []
    for time in ("12:00", "12:00:05", "12:00:15"):
        world.clock.set(at(time))
        await world.run_one(Transient("down"))
        started.append((await world.get_job(job_id)).started_at)

    assert started == [at("12:00"), at("12:00:05"), at("12:00:15")]
    assert (await world.get_job(job_id)).retry_after == at("12:00:15") + timedelta(seconds=20)
