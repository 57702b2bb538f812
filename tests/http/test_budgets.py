"""Calls without room wait, and are never sent without it."""

import asyncio
from uuid import uuid4

import pytest

from support.world import at
from syncline.clock import monotonic
from syncline.errors import Deferred
from syncline.http import HttpClient, HttpEnvironment, Response
from syncline.http.budget_shares import CallLimit
from syncline.http.budgets import CallBudgets, Spender
from syncline.http.connection_turns import ConnectionTurns
from syncline.http.messages import Request
from syncline.http.rate_limits import Remainder, remaining_calls

LIMIT = CallLimit("app", 100, "all", capacity=1, rate=10, hold_seconds=1)


async def test_while_the_database_is_away_nothing_is_sent() -> None:
    """Nobody fills the budget: the call waits for two seconds and is then deferred."""
    budgets, sent = CallBudgets(), list[Request]()
    budgets.open()
    budgets.set_limits({"app": (LIMIT,)})

    async def answer(request: Request, send: object) -> Response:
        sent.append(request)
        return Response(200)

    environment = HttpEnvironment(intercept=answer, budgets=budgets)
    began = monotonic()
    async with HttpClient(environment, spender=Spender("app")) as client:
        with pytest.raises(Deferred):
            await client.get("https://api.example.com/")

    assert sent == []
    assert 1.9 < monotonic() - began < 4


async def test_a_budget_that_is_removed_lets_waiting_calls_go() -> None:
    budgets = CallBudgets()
    budgets.open()
    budgets.set_limits({"app": (LIMIT,)})
    waiting = asyncio.create_task(budgets.take(Spender("app")))
    await asyncio.sleep(0)
    budgets.set_limits({})
    budgets.serve()

    await waiting


async def test_calls_that_would_wait_for_long_are_deferred_at_once() -> None:
    """Ten a second flow in: of a hundred that wait, twenty may stay, and keep their slots."""
    budgets = CallBudgets()
    budgets.open()
    budgets.set_limits({"app": (LIMIT,)})
    calls = [asyncio.create_task(budgets.take(Spender("app", "", uuid4()))) for _ in range(100)]
    await asyncio.sleep(0)
    [share] = budgets.common
    share.level, share.seen_at = 0.0, monotonic()

    budgets.serve()
    await asyncio.sleep(0)

    deferred = [call for call in calls if call.done()]
    assert 78 <= len(deferred) <= 82
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_without_a_budget_nothing_is_kept() -> None:
    budgets = CallBudgets()
    budgets.open()

    await budgets.take(Spender("app"))

    assert (budgets.shares, budgets.wanted.is_set()) == ({}, False)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (
            {"x-ratelimit-remaining": "12", "x-ratelimit-reset": "30", "x-ratelimit-limit": "60"},
            Remainder(12, 30, 60),
        ),
        (
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(at("12:10").timestamp()))},
            Remainder(0, 600, None),
        ),
        ({"ratelimit": "limit=100, remaining=50, reset=5"}, Remainder(50, 5, 100)),
        ({"ratelimit": '"default";r=50;t=30'}, Remainder(50, 30, None)),
        ({"ratelimit-remaining": "7", "ratelimit-reset": "9"}, Remainder(7, 9, None)),
        ({"x-ratelimit-remaining": "12"}, None),
        ({"x-ratelimit-reset": "12"}, None),
        ({"x-ratelimit-remaining": "lots", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "30"}, None),
        ({"retry-after": "5"}, None),
    ],
)
def test_what_headers_say_about_the_rest(headers: dict[str, str], found: Remainder | None) -> None:
    assert remaining_calls(headers, now=at("12:00")) == found


async def test_a_call_that_waits_for_a_connection_is_taken_when_it_gets_one() -> None:
    """Calls that a slow provider held up must not all come within one window."""
    turns = ConnectionTurns()
    deadline, origin = asyncio.get_running_loop().time() + 5, ("https", "api.example.com", 443)
    order = []

    async def call(name: str, release: asyncio.Event) -> None:
        async with turns.take(origin, 1, deadline):
            order.append(name)
            await release.wait()

    first, second = asyncio.Event(), asyncio.Event()
    second.set()
    tasks = [asyncio.create_task(call("first", first)), asyncio.create_task(call("next", second))]
    await asyncio.sleep(0.01)
    waiting = list(order)
    first.set()
    await asyncio.gather(*tasks)

    assert (waiting, order) == (["first"], ["first", "next"])
    assert turns._turns == {}, "nothing is kept of an origin that nobody calls"


async def test_while_the_database_is_away_calls_do_not_hurry_the_engine() -> None:
    budgets = CallBudgets()
    budgets.open()
    budgets.set_limits({"app": (LIMIT,)})
    budgets.wanted.clear()
    budgets.is_in_trouble = True
    waiting = asyncio.create_task(budgets.take(Spender("app")))
    await asyncio.sleep(0)

    assert not budgets.wanted.is_set()
    waiting.cancel()
