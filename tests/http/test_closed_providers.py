"""While a provider limits the application, nobody calls it; a run that must wait is deferred."""

import pytest

from support.world import World, at
from syncline import Connection, SyncResult
from syncline.clock import monotonic
from syncline.errors import Deferred, Permanent
from syncline.http import HttpClient, HttpEnvironment
from syncline.http.gate import ClosedProviders


async def test_a_call_that_would_wait_for_long_is_deferred() -> None:
    closed = ClosedProviders()
    closed.set({"github": monotonic() + 60})
    client = HttpClient(HttpEnvironment(closed=closed), provider_slug="github")

    async with client:
        with pytest.raises(Deferred) as deferred:
            await client.get("https://api.example.com/")

    assert 59 < deferred.value.seconds <= 60


async def test_other_providers_are_not_deferred() -> None:
    closed = ClosedProviders()
    closed.set({"github": monotonic() + 60})

    await closed.wait("slack")


async def test_a_short_wait_is_waited_for() -> None:
    closed = ClosedProviders()
    closed.set({"github": monotonic() + 0.05})

    await closed.wait("github")

    assert monotonic() >= closed._until["github"]


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_deferred_run_counts_no_attempt_and_comes_back_in_time(
    world: World, is_wrapped: bool
) -> None:
    """P4: whatever the connector makes of the exception."""
    job = await world.job(await world.connection())

    def defer(connection: Connection, cursor: object) -> SyncResult:
        try:
            raise Deferred("github", 60)
        except Deferred as deferred:
            if is_wrapped:
                raise Permanent("the call failed") from deferred
            raise

    world.script(defer)
    await world.run_due()

    deferred = await world.get_job(job)
    assert (deferred.status, deferred.attempts, deferred.error) == ("queued", 0, None)
    assert deferred.retry_after == at("12:01")
    world.script(SyncResult())
    assert await world.run_due("12:01") == 1
    assert (await world.get_job(job)).status == "succeeded"
