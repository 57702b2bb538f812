"""A connector's own exception shows where it was raised, wherever somebody looks."""

import logging
from typing import Any

import pytest

from support.telemetry_events import EVENTS
from support.world import Logged, World
from syncline import Connection, RateLimited, Transient, Unauthorized
from syncline.telemetry.engine import Telemetry


def buggy(connection: Connection, cursor: Any) -> Any:
    secret = "hunter2"
    raise KeyError(f"no such field; password={secret}")


async def run_buggy(world: World, times: int) -> None:
    for _ in range(times):
        await world.job(await world.connection())
    world.script(*[buggy] * times)
    await world.run_due()


async def test_a_library_logs_the_traceback_of_a_connector(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Any handler of the standard library shows it: it is part of the record's text."""
    with caplog.at_level(logging.INFO, logger="syncline"):
        await run_buggy(world, 1)

    [record] = [one for one in caplog.records if "connector_raised" in one.getMessage()]
    assert "test_tracebacks.py" in record.getMessage()
    assert "in buggy" in record.getMessage()
    assert "KeyError" in record.getMessage()
    assert "hunter2" not in record.getMessage()


async def test_the_same_error_is_shown_once(world: World, logged: Logged) -> None:
    await run_buggy(world, 5)

    [shown] = logged("executor.connector_raised")
    assert (shown["error_class"], shown["provider_slug"]) == ("KeyError", "github")


def test_what_was_left_out_is_counted(logged: Logged) -> None:
    EVENTS["connector_raised"](Telemetry())

    first, second = logged("executor.connector_raised")
    assert "repeated" not in first
    assert second["repeated"] == 1


async def test_an_error_that_connectors_are_meant_to_raise_needs_no_traceback(
    world: World, logged: Logged
) -> None:
    await world.job(await world.connection())
    world.script(Transient("the provider is down"))
    await world.run_due()

    assert logged("executor.connector_raised") == []


@pytest.mark.parametrize("base", [Exception, RateLimited, Unauthorized])
async def test_an_error_whose_own_methods_raise_still_ends_its_job(
    world: World, base: type[Exception]
) -> None:
    class Rude(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            Exception.__init__(self)

        def __str__(self) -> str:
            raise ValueError("no")

        @property
        def details(self) -> Any:
            raise ValueError("no")

        @property
        def retry_after_seconds(self) -> Any:
            raise ValueError("no")

        @property
        def message(self) -> Any:
            raise ValueError("no")

    connection = await world.connection()
    job_id = await world.job(connection)
    world.script(Rude())
    await world.run_due()

    ended = "failed" if base is Unauthorized else "queued"
    assert (await world.get_job(job_id)).status == ended
