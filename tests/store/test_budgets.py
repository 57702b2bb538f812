"""The bucket of a budget: what is taken from it, by whom, and what flows back."""

import random
from bisect import bisect_left
from datetime import datetime, timedelta
from typing import Any

import pytest

from support.sessions import actor, made_to_wait
from support.world import World, at
from syncline.policy.budgets import Bucket, Budget, Source, check
from syncline.store.queue import budgets
from syncline.store.queue.budgets import Taken, Taking

pytestmark = pytest.mark.usefixtures("no_deadlock")
BUDGET = check(Budget("app", 1000, timedelta(minutes=1)))  # ten at once
NOON = at("12:00")


async def take(world: World, now: datetime, budget: Budget = BUDGET, **asked: Any) -> Taken:
    async with world.engine._pool.transaction() as tx:
        taking = Taking(budget, **asked)
        found = await budgets.take(tx, [taking], now=now)
    return found[budget.scope, taking.member]


async def test_a_bucket_gives_what_it_has_and_no_more(world: World) -> None:
    first = await take(world, NOON, needed=7)
    second = await take(world, NOON, needed=7)
    third = await take(world, NOON, needed=7)

    assert [first.taken, second.taken, third.taken] == [7, 3, 0]


async def test_calls_flow_in_with_time(world: World) -> None:
    await take(world, NOON, needed=10)
    later = await take(world, NOON + timedelta(seconds=0.5), needed=100)
    much_later = await take(world, NOON + timedelta(hours=1), needed=100)

    assert later.taken == int(0.5 * BUDGET.rate) == 8
    assert much_later.taken == 10, "a bucket never holds more than its burst"


async def test_a_process_wants_a_quarter_of_the_rest_at_most(world: World) -> None:
    wanted = await take(world, NOON, needed=2, wanted=100)

    assert wanted.taken == 2 + (10 - 2) // 4


async def test_of_two_who_take_at_once_each_gets_his_own(world: World) -> None:
    """The second waits for the row, and sees what the first has left."""
    await take(world, NOON)
    async with actor(world) as first:
        found = await budgets.take(first.tx, [Taking(BUDGET, needed=6)], now=NOON)
        second = await made_to_wait(world, take(world, NOON, needed=10))
        await first.commit()

    assert found["app", ""].taken == 6
    assert (await second).taken == 4


async def test_two_who_make_the_same_bucket_share_it(world: World) -> None:
    async with actor(world) as first:
        await budgets.take(first.tx, [Taking(BUDGET, needed=6)], now=NOON)
        second = await made_to_wait(world, take(world, NOON, needed=10))
        await first.commit()

    assert (await second).taken == 4


async def test_what_was_spent_without_asking_is_owed(world: World) -> None:
    owed = await take(world, NOON, spent=15)
    later = await take(world, NOON + timedelta(seconds=5 / BUDGET.rate), needed=1)
    enough = await take(world, NOON + timedelta(seconds=6.1 / BUDGET.rate), needed=1)

    assert owed.tokens == -5
    assert (later.taken, enough.taken) == (0, 1)


async def test_what_is_owed_is_at_most_a_whole_span(world: World) -> None:
    assert (await take(world, NOON, spent=1_000_000)).tokens == -1000


async def test_calls_that_were_not_made_are_put_back(world: World) -> None:
    taken = await take(world, NOON, needed=10)

    back = await take(world, NOON, unused=10, unused_since=taken.now)

    assert back.tokens == 10


async def test_calls_are_not_put_back_into_a_bucket_that_was_full_since(world: World) -> None:
    """It would hold more than if they had never been taken, and a window be overdrawn."""
    taken = await take(world, NOON, needed=5)
    full = NOON + timedelta(seconds=1)
    await take(world, full, needed=10)

    back = await take(world, full, unused=5, unused_since=taken.now)

    assert back.tokens == 0


async def test_what_the_provider_says_lowers_what_is_left(world: World) -> None:
    await take(world, NOON, said_left=3.0, said_seconds=60.0)
    first = await take(world, NOON, needed=10)
    higher = await take(world, NOON, needed=10, said_left=500.0, said_seconds=60.0)
    reset = await take(world, NOON + timedelta(seconds=60), needed=10)

    assert (first.taken, higher.taken, reset.taken) == (3, 0, 10)


async def test_it_never_raises_what_is_left(world: World) -> None:
    await take(world, NOON, needed=10)
    said = await take(world, NOON, needed=10, said_left=5000.0, said_seconds=60.0)

    assert said.taken == 0


async def test_a_clock_that_goes_back_stops_nobody(world: World) -> None:
    await take(world, NOON, needed=10)
    before = NOON - timedelta(hours=2)

    at_once = await take(world, before, needed=1)
    later = await take(world, before + timedelta(seconds=1), needed=10)

    assert (at_once.taken, later.taken) == (0, 10)


async def test_a_clock_that_jumps_ahead_fills_one_bucket(world: World) -> None:
    await take(world, NOON, needed=10)

    assert (await take(world, NOON + timedelta(days=400), needed=5000)).taken == 10


async def test_a_lower_budget_counts_at_once(world: World) -> None:
    await take(world, NOON)
    lower = check(Budget("app", 100, timedelta(minutes=1)))

    assert (await take(world, NOON, lower, needed=10)).taken == 1


async def test_members_have_buckets_of_their_own(world: World) -> None:
    budget = check(Budget("app:{tenant}", 1000, timedelta(minutes=1)))

    first = await take(world, NOON, budget, member="acme", needed=10)
    second = await take(world, NOON, budget, member="other", needed=10)

    assert (first.taken, second.taken) == (10, 10)


async def test_a_bucket_that_is_full_again_is_removed(world: World) -> None:
    budget = check(Budget("app:{tenant}", 1000, timedelta(minutes=1)))
    await take(world, NOON, budget, member="busy", needed=10)
    await take(world, NOON, budget, member="idle", needed=1)
    soon = NOON + timedelta(seconds=0.2)

    async with world.engine._pool.transaction() as tx:
        removed = await budgets.remove_full(tx, now=soon, limit=10)

    assert removed == 1
    assert await buckets(world, budget, "busy", "idle") == ["busy"]


async def test_a_bucket_that_all_share_stays_as_long_as_its_budget(world: World) -> None:
    await take(world, NOON, needed=1)
    async with world.engine._pool.transaction() as tx:
        await budgets.set_all(tx, Source.OPERATOR, [BUDGET], now=NOON)
        kept = await budgets.remove_full(tx, now=at("13:00"), limit=10)
        await budgets.clear(tx, [Source.OPERATOR], "app")
        removed = await budgets.remove_full(tx, now=at("13:00"), limit=10)

    assert (kept, removed) == (0, 1)


async def test_calls_of_the_current_span_are_counted(world: World) -> None:
    await take(world, NOON, needed=4)
    await take(world, NOON + timedelta(seconds=30), needed=5)
    [first] = await read(world)
    await take(world, NOON + timedelta(seconds=61), needed=2)
    [second] = await read(world)

    assert (first.window_at, first.window_taken) == (NOON, 9)
    assert (second.window_at, second.window_taken) == (NOON + timedelta(seconds=61), 2)


@pytest.mark.parametrize("seed", range(3))
async def test_no_window_is_overdrawn_whatever_is_taken_and_put_back(
    world: World, seed: int
) -> None:
    """P1 on the statement itself: calls are made up to a hold later, or put back."""
    rng = random.Random(seed)
    per, hold = BUDGET.per.total_seconds(), BUDGET.hold.total_seconds()
    seconds, made, hand = 0.0, list[float](), list[tuple[float, int, datetime]]()
    for _ in range(600):
        seconds += rng.choice([0.0, 0.1, 0.3, 0.6]) * rng.random()
        now = NOON + timedelta(seconds=seconds)
        lapsed = [block for block in hand if block[0] + hold <= seconds]
        hand = [block for block in hand if block[0] + hold > seconds]
        asked: dict[str, Any] = {"needed": rng.choice([1, 50, 50])}
        if lapsed:
            asked["unused"] = sum(block[1] for block in lapsed)
            asked["unused_since"] = min(block[2] for block in lapsed)
        taken = await take(world, now, **asked)
        if taken.taken and rng.random() < 0.2:
            hand.append((seconds, taken.taken, taken.now))
        else:
            made += [seconds + hold * rng.random()] * taken.taken

    made.sort()
    busiest = max(n - bisect_left(made, last - per) + 1 for n, last in enumerate(made))
    assert busiest <= 1000
    assert len(made) > 0.7 * BUDGET.rate * seconds, "much of it was used"


async def test_setting_what_is_set_already_changes_nothing(world: World) -> None:
    async with world.engine._pool.transaction() as tx:
        first = await budgets.set_all(tx, Source.SETTINGS, [BUDGET], now=NOON)
        again = await budgets.set_all(tx, Source.SETTINGS, [BUDGET], now=NOON)
        found, _ = await budgets.read(tx)

    assert (first, again) == (["app"], [])
    assert [(one.scope, one.calls, one.providers, one.source) for one in found] == [
        ("app", 1000, ("app",), Source.SETTINGS)
    ]


async def read(world: World) -> list[Bucket]:
    async with world.engine._pool.transaction() as tx:
        return await budgets.read_buckets(tx, [("app", "")])


async def buckets(world: World, budget: Budget, *members: str) -> list[str]:
    async with world.engine._pool.transaction() as tx:
        found = await budgets.read_buckets(tx, [(budget.scope, one) for one in members])
    return [bucket.member for bucket in found]
