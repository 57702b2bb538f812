"""The audit is listed newest first, by every filter, and a tenant sees its own names only."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline.errors import Invalid
from syncline.policy.audit import Action, Actor, ActorKind, AuditRecord, Entry, change_text
from syncline.store.data.audit import record
from syncline.store.pool import Pool

ANN, ACME, BOB = (
    Actor(ActorKind.KEY, "ann"),
    Actor(ActorKind.TENANT_KEY, "acme's"),
    Actor(name="bob"),
)


@pytest.fixture
async def rows(world: World) -> dict[str, Any]:
    """Eight rows, a minute apart: pauses and keys, of two tenants, by three people."""
    first, second = await world.connection(), await world.connection(tenant="birch")
    pool = Pool(world.url, world.schema, size=1)
    await pool.open()
    for number in range(8):
        actor = (ANN, ACME, BOB)[number % 3]
        one = first if number % 2 else second
        entry = Entry(
            Action.CONNECTIONS_PAUSE if number < 6 else Action.KEYS_CREATE,
            one.tenant_id,
            "github" if number < 4 else "gitlab",
            str(number),
            (one.id,) if number < 6 else (),
        )
        now = at("12:00") + timedelta(minutes=number)
        async with pool.transaction() as tx:
            await record(tx, actor, [entry], now=now)
    await pool.close()
    return {"first": first.id, "second": second.id}


def subjects(found: Sequence[AuditRecord]) -> str:
    return "".join(one.subject or "-" for one in found)


async def test_every_filter_leaves_its_rows(world: World, rows: dict[str, Any]) -> None:
    audit = world.engine.audit

    assert subjects(await audit.list()) == "76543210"
    assert subjects(await audit.list(tenant_id="acme")) == "7531"
    assert subjects(await audit.list(provider_slug="gitlab")) == "7654"
    assert subjects(await audit.list(actor="ann")) == "630"
    assert subjects(await audit.list(action="keys.create")) == "76"
    assert subjects(await audit.list(connection_id=rows["first"])) == "531"
    assert subjects(await audit.list(since=at("12:06"))) == "76"
    assert subjects(await audit.list(until=at("12:02"))) == "10"
    assert subjects(await audit.list(tenant_id="acme", actor="ann", since=at("12:01"))) == "3"
    assert subjects(await audit.list(connection_id=rows["first"], tenant_id="birch")) == ""


@pytest.mark.parametrize(
    "filters",
    [{}, {"tenant_id": "acme"}, {"provider_slug": "github"}, {"actor": "ann"}, {"connection": 1}],
)
async def test_pages_follow_each_other(
    world: World, rows: dict[str, Any], filters: dict[str, Any]
) -> None:
    if "connection" in filters:
        filters = {"connection_id": rows["second"]}
    whole = subjects(await world.engine.audit.list(**filters))

    found, after = "", None
    while True:
        page = await world.engine.audit.list(**filters, after=after, limit=1)
        found, after = found + subjects(page), page.next_page
        if after is None:
            break

    assert found == whole
    assert len(whole) > 2


async def test_a_tenant_sees_no_names_but_its_own(world: World, rows: dict[str, Any]) -> None:
    audit = world.engine.for_request("acme", actor=ACME).audit

    found = await audit.list()

    assert [(one.subject, one.actor_kind, one.actor) for one in found] == [
        ("7", "tenant_key", "acme's"),
        ("5", "operator", "operator"),
        ("3", "operator", "operator"),
        ("1", "tenant_key", "acme's"),
    ]
    assert {(one.key_id, one.address) for one in found} == {(None, None)}
    assert subjects(await audit.list(actor="operator")) == "53"
    assert subjects(await audit.list(actor="acme's")) == "71"
    for name in ("ann", "bob"):
        assert await audit.list(actor=name) == []
    assert await audit.list(connection_id=rows["second"]) == []
    assert await audit.list(tenant_id="birch") == []


async def test_wrong_filters_name_their_field(world: World) -> None:
    wrong: dict[str, Any] = {"action": "stolen", "actor": ""}
    wrong["since"] = at("12:00").replace(tzinfo=None)
    for field, value in wrong.items():
        with pytest.raises(Invalid, match=field):
            await world.engine.audit.list(**{field: value})
    with pytest.raises(Invalid, match="after"):
        await world.engine.audit.list(after="made up")


@pytest.mark.engine(retention={"audit_days": 10})
async def test_old_rows_are_pruned(world: World, rows: dict[str, Any]) -> None:
    world.clock.set(at("12:04") + timedelta(days=10))

    report = await world.engine.prune()

    assert report.audit == 4
    assert subjects(await world.engine.audit.list()) == "7654"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"a": 1}, {"a": 2, "b": "x"}, "a: 1 → 2, b: x"),
        ({"a": [1]}, None, "a: [1] → none"),
        (None, {"a": None}, "a: null"),
        (None, None, ""),
    ],
)
def test_a_change_is_told_in_a_line(before: Any, after: Any, text: str) -> None:
    assert change_text(before, after) == text
