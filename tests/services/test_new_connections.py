"""Many connections at once: each is added once, and a bad one harms no other."""

import asyncio
from typing import Any

from support.world import World, at
from syncline.services.connections import NewConnection


def new(number: int, **fields: Any) -> NewConnection:
    values: dict[str, Any] = {
        "tenant_id": "acme",
        "provider_slug": "github",
        "external_id": f"a-{number}",
    }
    return NewConnection(**{**values, **fields})


async def test_connections_are_added_as_create_adds_them(world: World) -> None:
    [added] = await world.engine.connections.create_many(
        [new(1, config={"url": "x"}, interval_seconds=300)]
    )
    alone = await world.engine.connections.create(
        tenant_id="acme",
        provider_slug="github",
        external_id="a-2",
        config={"url": "x"},
        interval_seconds=300,
    )

    assert added.id is not None
    made = await world.engine.connections.get(added.id)
    assert (made.status, made.config, made.metadata) == (
        alone.status,
        alone.config,
        alone.metadata,
    )
    assert made.created_at == at("12:00")


async def test_an_existing_connection_is_left_alone_and_named(world: World) -> None:
    [first, twin] = await world.engine.connections.create_many([new(1), new(1)])
    [again, other] = await world.engine.connections.create_many(
        [new(1, config={"other": True}), new(2)]
    )

    assert {first.is_new, twin.is_new} == {True, False}
    assert (again.id, again.is_new, other.is_new) == (first.id, False, True)
    assert first.id is not None
    assert (await world.engine.connections.get(first.id)).config == {}


async def test_bad_one_is_refused_by_field_and_rule_and_harms_no_other(world: World) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"tenant_id": ""}, "tenant_id is ''; it must be a non-empty text"),
        ({"provider_slug": "x" * 101}, "provider_slug has 101 characters; 100 is the most"),
        ({"external_id": "\0"}, "external_id is '\\x00'; it must be"),
        ({"config": []}, "config is list; it must be an object"),
        ({"config": {"x": float("nan")}}, "config"),
        ({"interval_seconds": 59}, "interval_seconds is 59; it must be an integer from 60"),
    ]

    *bad, good = await world.engine.connections.create_many(
        [*(new(number, **fields) for number, (fields, _) in enumerate(refusals)), new(99)]
    )

    for refused, (_, rule) in zip(bad, refusals, strict=True):
        assert refused.id is None
        assert str(refused.problem).startswith(rule)
    assert good.is_new


async def test_nothing_comes_of_nothing(world: World) -> None:
    assert await world.engine.connections.create_many([]) == []


async def test_two_who_add_the_same_ones_do_not_deadlock(world: World) -> None:
    there, back = [new(n) for n in range(200)], [new(n) for n in reversed(range(200))]
    async with world.another_engine() as second:
        first, other = await asyncio.gather(
            world.engine.connections.create_many(there), second.engine.connections.create_many(back)
        )

    assert sum(one.is_new for one in (*first, *other)) == 200
