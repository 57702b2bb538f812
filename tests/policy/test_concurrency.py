"""How many jobs run at once by default."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.concurrency import (
    CEILING,
    CUT_EVERY_SECONDS,
    FEW_BYTES,
    FEW_UNSETTLED,
    FLOOR,
    PAGE_BYTES,
    UNUSED_SECONDS,
    Load,
    next_limit,
    unsettled_room,
)

BUSY = Load(taken=400, ended=100, is_more_due=True, seconds=0, run_share=0.01, seconds_since_cut=10)
QUICK = replace(BUSY, run_share=0)
IDLE = replace(BUSY, ended=0, is_more_due=False)


@pytest.mark.parametrize(
    ("load", "decided"),
    [
        pytest.param(BUSY, 500, id="each run that ended adds a slot"),
        pytest.param(QUICK, 800, id="each quick run adds four"),
        pytest.param(replace(BUSY, ended=0), 400, id="nothing ended"),
        pytest.param(replace(BUSY, ended=0, seconds=1), 420, id="runs that hang: 5 % a second"),
        pytest.param(replace(BUSY, ended=0, seconds=3600), 420, id="an hour counts as a second"),
        pytest.param(replace(BUSY, is_more_due=False), 400, id="nothing more is due"),
        pytest.param(replace(BUSY, loop_seconds=0.11), 400, id="the loop is slow"),
        pytest.param(replace(BUSY, loop_seconds=0.26), 200, id="the loop is blocked"),
        pytest.param(replace(BUSY, database_seconds=0.51), 400, id="the database is slow"),
        pytest.param(replace(BUSY, database_seconds=2.1), 200, id="the database falls behind"),
        pytest.param(replace(BUSY, run_share=0.051), 400, id="runs are slow"),
        pytest.param(replace(BUSY, run_share=0.26), 200, id="runs are close to their limit"),
        pytest.param(
            replace(BUSY, loop_seconds=9, seconds_since_cut=CUT_EVERY_SECONDS - 0.1),
            400,
            id="cut a moment ago",
        ),
        pytest.param(replace(BUSY, run_bytes=PAGE_BYTES / 300), 300, id="pages fill the memory"),
        pytest.param(replace(BUSY, run_bytes=PAGE_BYTES), FLOOR, id="pages are huge"),
        pytest.param(
            replace(IDLE, taken=10, seconds_since_more=UNUSED_SECONDS), 200, id="unused slots"
        ),
        pytest.param(
            replace(IDLE, taken=150, seconds_since_more=UNUSED_SECONDS), 300, id="half used"
        ),
        pytest.param(
            replace(IDLE, taken=399, seconds_since_more=UNUSED_SECONDS), 400, id="all used"
        ),
        pytest.param(
            replace(IDLE, taken=10, seconds_since_more=UNUSED_SECONDS - 1), 400, id="unused lately"
        ),
    ],
)
def test_the_limit_follows_the_load(load: Load, decided: int) -> None:
    assert next_limit(400, load) == pytest.approx(decided)


seconds = st.floats(0, 1000)
loads = st.builds(
    Load,
    taken=st.integers(0, 20_000),
    ended=st.integers(0, 20_000),
    is_more_due=st.booleans(),
    seconds=seconds,
    loop_seconds=seconds,
    database_seconds=seconds,
    run_share=st.floats(0, 2),
    run_bytes=st.floats(0, 1e9),
    seconds_since_cut=seconds,
    seconds_since_more=seconds,
)
limits = st.floats(FLOOR, CEILING)


@given(limits, loads)
def test_the_limit_stays_within_its_bounds(limit: float, load: Load) -> None:
    assert FLOOR <= next_limit(limit, load) <= CEILING


@given(limits, loads, seconds, seconds)
def test_more_trouble_never_means_more_slots(
    limit: float, load: Load, loop: float, database: float
) -> None:
    worse = replace(
        load,
        loop_seconds=load.loop_seconds + loop,
        database_seconds=load.database_seconds + database,
    )
    unused = replace(worse, seconds_since_cut=CUT_EVERY_SECONDS)
    assert next_limit(limit, unused) <= next_limit(
        limit, replace(load, seconds_since_cut=CUT_EVERY_SECONDS)
    )


@given(limits, loads)
def test_nothing_grows_unless_more_is_due(limit: float, load: Load) -> None:
    assert next_limit(limit, replace(load, is_more_due=False)) <= limit


def test_fast_runs_reach_the_ceiling_in_a_few_dozen_claims() -> None:
    limit, claims = float(FLOOR), 0
    while limit < CEILING:
        limit = next_limit(limit, replace(QUICK, ended=max(int(limit) // 8, 25), seconds=0.002))
        claims += 1
    assert claims <= 15


def test_slow_runs_double_the_limit_in_the_time_that_they_take() -> None:
    """Ten seconds each: eighty seconds later all slots are there."""
    limit, passed = float(FLOOR), 0
    while limit < CEILING:
        limit = next_limit(
            limit, replace(BUSY, ended=int(limit) // 10, seconds=1, run_share=1 / 30)
        )
        passed += 1
    assert 20 <= passed <= 80


def test_runs_that_wait_for_each_other_end_long_before_their_time_is_up() -> None:
    """A provider answers 21 calls a second, however many wait: more slots only wait longer."""
    limit, waits, longest = float(FLOOR), [0.0], 0.0
    for second in range(600):
        began = next(at for at in range(second + 1) if at + waits[at] >= second)
        limit = next_limit(
            limit,
            replace(
                BUSY, ended=21, seconds=1, seconds_since_cut=2, run_share=(second - began) / 300
            ),
        )
        waits.append(limit / 21)
        longest = max(longest, waits[-1])
    assert longest < 150


def test_trouble_leads_back_to_the_floor() -> None:
    limit = float(CEILING)
    for _ in range(8):
        limit = next_limit(limit, replace(BUSY, loop_seconds=1, seconds_since_cut=1))
    assert limit == FLOOR


@pytest.mark.parametrize(
    ("limit", "unsettled", "waiting_bytes", "room"),
    [
        (100, 100, 0, FEW_UNSETTLED),  # few slots run ahead of what is settled
        (100, 600, 0, 0),
        (100, 150, FEW_BYTES, 50),  # unless much waits in memory
        (8000, 8000, 0, 8000),
        (8000, 16_000, 0, 0),
    ],
)
def test_what_is_not_settled_bounds_what_is_claimed(
    limit: int, unsettled: int, waiting_bytes: int, room: int
) -> None:
    assert unsettled_room(limit, unsettled, waiting_bytes) == room
