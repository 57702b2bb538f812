"""Slots: which run of a connection is due, whatever happened since the last one."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.world import at
from syncline.policy.schedule import (
    Candidate,
    RunPlan,
    ScheduleRules,
    Slot,
    StoredSync,
    next_slot_at,
    plan_run,
    plan_slot,
    read_sync,
)

QUARTER = timedelta(minutes=15)
SECOND = timedelta(seconds=1)
RULES = ScheduleRules(QUARTER, timedelta(days=1), Decimal(0), Decimal("0.2"))

instants = st.datetimes(
    datetime(2000, 1, 1),
    datetime(2100, 1, 1),
    timezones=st.just(UTC),
)
intervals = st.integers(60, 86_400).map(lambda seconds: timedelta(seconds=seconds))
gaps = st.integers(-200_000, 50_000_000).map(lambda tenths: timedelta(seconds=tenths / 10))
rolls = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("last", "now", "due", "next_run"),
    [
        pytest.param("12:00", "12:15", "12:15", "12:30", id="exactly on the slot takes it"),
        pytest.param("10:00", "10:20", "10:15", "10:30", id="a little late"),
        pytest.param("10:00", "10:14", "10:15", "10:30", id="a tick ahead"),
        pytest.param("10:00", "11:07", "11:00", "11:15", id="four slots missed, one run"),
        pytest.param("10:00", "10:00", "10:15", "10:30", id="finished just now"),
        pytest.param("10:00", "09:00", "10:15", "10:30", id="finished in the future"),
        pytest.param("10:00", "10:29:59", "10:15", "10:30", id="the last second of a slot"),
        pytest.param("10:00", "10:30", "10:30", "10:45", id="the first instant of the next"),
        pytest.param("00:00:07", "23:59", "23:45:07", "24:00:07", id="a day away, odd seconds"),
    ],
)
def test_slot(last: str, now: str, due: str, next_run: str) -> None:
    assert plan_slot(at(last), QUARTER, at(now)) == Slot(at(due), next_run_at=at(next_run))


@given(instants, intervals, gaps)
def test_a_slot_is_a_whole_number_of_intervals_after_the_last_run(
    last: datetime, interval: timedelta, gap: timedelta
) -> None:
    slot = plan_slot(last, interval, last + gap)

    assert slot.due_at > last
    assert (slot.due_at - last) % interval == timedelta()
    assert slot.next_run_at == slot.due_at + interval


@given(instants, intervals, gaps)
def test_next_run_is_always_ahead(last: datetime, interval: timedelta, gap: timedelta) -> None:
    now = last + gap

    assert plan_slot(last, interval, now).next_run_at > now


@given(instants, intervals, gaps)
def test_a_slot_has_come_unless_it_is_the_first(
    last: datetime, interval: timedelta, gap: timedelta
) -> None:
    slot = plan_slot(last, interval, last + gap)

    assert slot.due_at <= last + gap or slot.due_at == last + interval


@given(instants, intervals, st.integers(-5, 300), st.integers(0, 86_399))
def test_slots_are_what_stepping_through_them_finds(
    last: datetime, interval: timedelta, slots: int, seconds: int
) -> None:
    now = last + slots * interval + timedelta(seconds=seconds) % interval

    stepped = last + interval
    while stepped + interval <= now:
        stepped += interval
    assert plan_slot(last, interval, now).due_at == stepped


@given(instants, intervals, gaps, gaps)
def test_time_never_moves_a_slot_back(
    last: datetime, interval: timedelta, gap: timedelta, later: timedelta
) -> None:
    now = last + gap

    assert (
        plan_slot(last, interval, now + abs(later)).due_at >= plan_slot(last, interval, now).due_at
    )


@given(instants, intervals, st.lists(st.integers(0, 7200), min_size=1, max_size=40))
def test_no_slot_is_skipped_or_run_twice_however_ticks_and_outages_fall(
    start: datetime, interval: timedelta, pauses: list[int]
) -> None:
    """Each run ends in its slot's own second; the slots run are then all those that had a tick."""
    last, now, run = start, start, list[datetime]()
    for seconds in pauses:
        now += timedelta(seconds=seconds)
        slot = plan_slot(last, interval, now)
        if slot.due_at <= now:
            run.append(slot.due_at)
            last = slot.due_at

    assert run == sorted(set(run))
    assert last == start + (now - start) // interval * interval, "the latest slot that came was run"


@given(instants, intervals, gaps, rolls)
def test_a_planned_run_is_its_slot_and_jitter(
    last: datetime, interval: timedelta, gap: timedelta, roll: float
) -> None:
    now = last + gap
    plan = _plan(last, interval, now, roll)

    slot = plan_slot(last, interval, now)
    if last > now + interval:  # the clock stood ahead: that time tells nothing
        slot = Slot(now, now + interval)
    assert plan.slot_at == slot.due_at
    assert plan.scheduled_at == plan.slot_at + plan.jitter_seconds * SECOND
    assert plan.next_run_at == plan.next_check_at == slot.next_run_at
    assert plan.scheduled_at < plan.next_run_at, "jitter never reaches the next slot"


@pytest.mark.parametrize(
    ("now", "next_due"),
    [
        pytest.param("10:14", "10:15", id="ahead of the slot"),
        pytest.param("10:15", "10:15", id="on the slot"),
        pytest.param("10:20", "10:30", id="catching up"),
        pytest.param("11:07", "11:15", id="catching up after an outage"),
    ],
)
def test_the_trace_names_the_next_due_slot(now: str, next_due: str) -> None:
    assert _plan(at("10:00"), QUARTER, at(now)).next_due_at == at(next_due)


@pytest.mark.parametrize(
    ("activated", "reference"),
    [
        pytest.param("11:50", "11:50", id="counted from the activation"),
        pytest.param(None, "09:00", id="else from the creation"),
    ],
)
def test_a_bootstrap_runs_at_once(activated: str | None, reference: str) -> None:
    plan = _plan(None, QUARTER, at("12:00"), activated=activated)

    assert plan.scheduled_at == plan.slot_at == at("12:00")
    assert plan.next_run_at == at(reference) + QUARTER + plan.jitter_seconds * SECOND
    assert plan.next_check_at == at("12:15"), "a next run in the past is no reason to look at once"


@pytest.mark.parametrize(
    ("last", "slot"),
    [
        pytest.param(None, "12:00", id="never ran: now"),
        pytest.param("11:50", "12:05", id="ran: an interval later"),
    ],
)
def test_next_slot(last: str | None, slot: str) -> None:
    candidate = _candidate(at(last) if last else None, StoredSync("object", *[None] * 5))

    options = read_sync(candidate.stored, RULES)
    assert next_slot_at(candidate, options, at("12:00")) == at(slot)


def _plan(
    last: datetime | None,
    interval: timedelta,
    now: datetime,
    roll: float = 0.5,
    activated: str | None = None,
) -> RunPlan:
    stored = StoredSync(
        metadata_kind="object",
        sync_kind="object",
        interval_seconds=str(int(interval.total_seconds())),
        next_run_at=None,
        last_jitter_seconds=None,
        first_activated_at=f'"{at(activated):%Y-%m-%dT%H:%M:%SZ}"' if activated else None,
    )
    return plan_run(_candidate(last, stored), read_sync(stored, RULES), RULES, now, roll)


def _candidate(last: datetime | None, stored: StoredSync) -> Candidate:
    return Candidate(UUID(int=1), "acme", "tickets", at("09:00"), last, False, stored)
