"""Time and chance: ids that strictly increase, clocks that know their zone."""

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.world import at
from syncline.clock import DatabaseClock, Dice, IdMaker, InjectedClock, clock_from, new_id, pause

MILLISECOND = 1_000_000  # in nanoseconds


class HostClock:
    """A host's clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.milliseconds = 1_735_732_800_000
        monkeypatch.setattr(time, "time_ns", lambda: self.milliseconds * MILLISECOND)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostClock:
    return HostClock(monkeypatch)


def milliseconds_of(id_: UUID) -> int:
    return id_.int >> 80


def is_increasing(ids: list[UUID]) -> bool:
    return all(one < other for one, other in pairwise(ids))


def test_ids_strictly_increase() -> None:
    assert is_increasing([new_id() for _ in range(200_000)])


def test_ids_increase_within_one_millisecond(host: HostClock) -> None:
    make = IdMaker()

    assert is_increasing([make() for _ in range(200_000)])


@given(st.lists(st.integers(-100_000, 100_000), max_size=50))
def test_ids_increase_whatever_the_hosts_clock_does(steps: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        host, make, ids = HostClock(patch), IdMaker(), list[UUID]()
        for step in steps:
            host.milliseconds += step
            ids += [make(), make()]

    assert is_increasing(ids)


def test_ids_increase_when_a_millisecond_is_used_up(
    host: HostClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_but_one = (1 << 74) - 2
    monkeypatch.setattr(random, "getrandbits", lambda bits: last_but_one if bits > 32 else 0)
    make = IdMaker()

    first, second, third = make(), make(), make()

    assert first < second < third
    assert milliseconds_of(second) == milliseconds_of(first)
    assert milliseconds_of(third) == milliseconds_of(first) + 1


def test_ids_are_ordered_by_the_time_they_were_made(host: HostClock) -> None:
    earlier = [IdMaker()() for _ in range(10)]
    host.milliseconds += 1
    later = [IdMaker()() for _ in range(10)]

    assert max(earlier) < min(later)
    assert {milliseconds_of(id_) for id_ in later} == {host.milliseconds}


def test_ids_made_together_increase_among_the_others(host: HostClock) -> None:
    make = IdMaker()

    ids = [make(), *make.many(1000), make(), *make.many(1), *make.many(0), make()]

    assert is_increasing(ids)
    assert len(ids) == 1004
    assert {(id_.version, id_.variant) for id_ in ids} == {(7, RFC_4122)}
    assert {milliseconds_of(id_) for id_ in ids} == {host.milliseconds}


@pytest.mark.parametrize("left", [1, 5, 9, 10], ids="{} left".format)
def test_ids_made_together_keep_their_bits_where_the_count_carries_over(
    host: HostClock, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    tail = (1 << 62) - left
    monkeypatch.setattr(random, "getrandbits", lambda bits: tail if bits > 32 else 0)
    make = IdMaker()

    ids = [*make.many(10), make()]

    assert is_increasing(ids)
    assert {(id_.version, id_.variant) for id_ in ids} == {(7, RFC_4122)}


def test_ids_of_two_processes_differ(host: HostClock) -> None:
    one, other = IdMaker(), IdMaker()

    assert not {one() for _ in range(1000)} & {other() for _ in range(1000)}


def test_ids_are_uuids_of_version_7() -> None:
    for id_ in (new_id() for _ in range(10_000)):
        assert id_.version == 7
        assert id_.variant == RFC_4122
        assert str(id_)[14] == "7"
        assert str(id_)[19] in "89ab"


def test_the_bits_of_an_id_are_those_of_rfc_9562(
    host: HostClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "getrandbits", lambda bits: (0x2BC << 62) + 0xDEF)

    id_ = IdMaker()()

    assert id_ == UUID(f"{host.milliseconds:012x}" + "72bc" + "8000" + "000000000def")


class NoDatabase:
    """Where an injected clock never looks."""

    async def database_time(self) -> datetime:
        raise AssertionError("asked the database for the time")


class Database:
    async def database_time(self) -> datetime:
        return at("10:15")


async def test_by_default_the_database_tells_the_time() -> None:
    clock = clock_from(None)

    assert isinstance(clock, DatabaseClock)
    assert await clock.now(Database()) == at("10:15")


async def test_an_injected_clock_is_asked_instead_and_read_in_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    clock = clock_from(lambda: datetime(2025, 1, 1, 19, 15, tzinfo=tokyo))

    now = await clock.now(NoDatabase())

    assert isinstance(clock, InjectedClock)
    assert now == at("10:15")
    assert now.tzinfo is UTC


async def test_an_injected_clock_must_know_its_zone() -> None:
    clock = clock_from(lambda: datetime(2025, 1, 1))

    with pytest.raises(ValueError, match="a time without a zone"):
        await clock.now(NoDatabase())


def test_dice_roll_what_their_generator_says() -> None:
    rolls = [Dice(random.Random(42)).roll() for _ in range(2)]

    assert rolls[0] == rolls[1] == random.Random(42).random()
    assert all(0 <= Dice().roll() < 1 for _ in range(100))


async def test_a_pause_lets_others_go_on() -> None:
    went_on = asyncio.Event()
    asyncio.get_running_loop().call_soon(went_on.set)

    await pause(0.001)

    assert went_on.is_set()
