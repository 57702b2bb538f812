"""The kit for other people's tests: a clock to set, a connector to script."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from support.world import at
from syncline import Connection, RateLimited, SyncResult
from syncline.testing import ManualClock, ScriptedConnector

CONNECTION = Connection(UUID(int=1), "acme", "tickets", "a-1", "active", {}, {})
PAGE = SyncResult(next_cursor={"page": 1})


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(at("12:00"))

    assert clock() == clock() == at("12:00")


@pytest.mark.parametrize(
    ("parts", "time"),
    [
        ({"seconds": 90}, "12:01:30"),
        ({"minutes": 15}, "12:15"),
        ({"hours": 1, "seconds": 1}, "13:00:01"),
        ({"days": -1, "hours": 23}, "11:00"),
        ({}, "12:00"),
    ],
)
def test_a_clock_is_moved_by_parts_of_time(parts: dict[str, float], time: str) -> None:
    clock = ManualClock(at("12:00"))

    assert clock.advance(**parts) == clock() == at(time)


def test_a_clock_takes_seconds_alone() -> None:
    assert ManualClock(at("12:00")).advance(30) == at("12:00:30")


def test_a_clock_is_set_also_backwards() -> None:
    clock = ManualClock(at("12:00"))

    clock.set(at("09:00"))

    assert clock() == at("09:00")


def test_a_clock_shows_utc() -> None:
    clock = ManualClock(datetime(2025, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))))

    assert clock() == at("12:00")
    assert clock().tzinfo is UTC


def test_a_clock_needs_a_zone() -> None:
    with pytest.raises(ValueError, match="the time needs a zone"):
        ManualClock(datetime(2025, 1, 1))
    clock = ManualClock(at("12:00"))
    with pytest.raises(ValueError, match="the time needs a zone"):
        clock.set(datetime(2025, 1, 1))

    assert clock() == at("12:00")


async def test_a_connector_follows_its_script_and_records_its_calls() -> None:
    error = RateLimited("slow")

    def answer(connection: Connection, cursor: Any) -> SyncResult:
        return SyncResult(next_cursor=[connection.external_id, cursor])

    async def answer_later(connection: Connection, cursor: Any) -> SyncResult:
        return answer(connection, cursor)

    connector = ScriptedConnector("tickets", [PAGE, error, answer, answer_later])

    assert await connector.sync(CONNECTION, None) is PAGE
    with pytest.raises(RateLimited) as raised:
        await connector.sync(CONNECTION, 1)
    assert raised.value is error
    assert (await connector.sync(CONNECTION, 2)).next_cursor == ["a-1", 2]
    assert (await connector.sync(CONNECTION, 3)).next_cursor == ["a-1", 3]
    assert connector.calls == [(CONNECTION.id, cursor) for cursor in (None, 1, 2, 3)]


async def test_an_exhausted_script_is_an_assertion_error() -> None:
    connector = ScriptedConnector("tickets")

    with pytest.raises(AssertionError, match="the script of 'tickets' is exhausted"):
        await connector.sync(CONNECTION, None)

    assert connector.calls == [(CONNECTION.id, None)]


async def test_a_script_can_be_written_on() -> None:
    connector = ScriptedConnector("tickets")
    connector.script.append(PAGE)

    assert await connector.sync(CONNECTION, None) is PAGE


async def test_a_script_may_raise_what_is_not_even_an_exception() -> None:
    with pytest.raises(SystemExit):
        await ScriptedConnector("tickets", [SystemExit()]).sync(CONNECTION, None)
