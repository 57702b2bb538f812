"""R4: who changed what, in the transaction of the change."""

import json
from typing import Any

import pytest

from support.world import World, at
from syncline.clock import new_id
from syncline.errors import Invalid
from syncline.keyring import new_key
from syncline.services.connections import NewConnection
from syncline.services.edits import Edit

NEW: dict[str, Any] = {"tenant_id": "acme", "provider_slug": "github", "external_id": "repo-1"}
CREDENTIALS = {"token": "canary"}


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    return {"secret_keys": new_key("k1")}


async def audit_rows(world: World) -> list[dict[str, Any]]:
    """Return what the audit holds, oldest first."""
    rows = await world.sql("SELECT * FROM {schema}.audit ORDER BY id")
    sides = ("before", "after")
    return [
        {**row, **{side: json.loads(row[side]) if row[side] else None for side in sides}}
        for row in rows
    ]


async def test_a_pause_is_recorded_with_who_did_it_and_what_changed(world: World) -> None:
    connection = await world.connection()

    await world.engine.acting_as("alice").connections.pause(connection.id, reason="they asked")

    [row] = await audit_rows(world)
    assert (row["actor_kind"], row["actor"]) == ("application", "alice")
    assert (row["action"], row["acted_at"]) == ("connections.pause", at("12:00"))
    assert (row["tenant_id"], row["provider_slug"]) == ("acme", "github")
    assert (row["subject"], row["connection_ids"]) == (connection.external_id, [connection.id])
    assert row["before"] == {"status": "active"}
    assert row["after"] == {"why": "they asked", "status": "paused"}


async def test_the_library_acts_as_the_application(world: World) -> None:
    connection = await world.connection()

    await world.engine.connections.pause(connection.id)

    [row] = await audit_rows(world)
    assert (row["actor_kind"], row["actor"]) == ("application", "application")


async def test_what_changes_nothing_is_not_recorded(world: World) -> None:
    connection = await world.connection()
    await world.engine.connections.pause(connection.id)

    await world.engine.connections.pause(connection.id)

    assert len(await audit_rows(world)) == 1


async def test_each_change_of_a_connection_is_one_row(world: World) -> None:
    added = await world.engine.connections.create(**NEW, config={"a": 1}, credentials=CREDENTIALS)
    for change in (
        world.engine.connections.set_interval(added.id, 300),
        world.engine.connections.set_config(added.id, {"a": 1, "b": 2}),
        world.engine.connections.set_cursor(added.id, {"page": 3}),
        world.engine.connections.pause(added.id),
        world.engine.connections.resume(added.id),
        world.engine.connections.set_credentials(added.id, {"user": "u", "password": "canary"}),
        world.engine.connections.set_credentials(added.id, None),
        world.engine.connections.delete(added.id),
    ):
        await change

    rows = await audit_rows(world)
    assert [(row["action"], row["before"], row["after"]) for row in rows] == [
        (
            "connections.create",
            None,
            {"status": "active", "config": {"a": 1}, "signs_in_with": ["token"]},
        ),
        ("connections.edit", None, {"interval_seconds": 300}),
        ("connections.edit", None, {"config": {"b": 2}}),
        ("connections.edit", None, {"cursor": {"page": 3}}),
        ("connections.pause", {"status": "active"}, {"status": "paused", "why": "paused"}),
        ("connections.resume", {"status": "paused", "why": "paused"}, {"status": "active"}),
        ("credentials.set", None, {"signs_in_with": ["password", "user"]}),
        ("credentials.clear", None, None),
        (
            "connections.delete",
            {
                "status": "active",
                "config": {"a": 1, "b": 2},
                "cursor": {"page": 3},
                "interval_seconds": 300,
            },
            None,
        ),
    ]
    assert {row["connection_ids"][0] for row in rows} == {added.id}
    assert {row["subject"] for row in rows} == {"repo-1"}


async def test_what_ensure_changes_is_recorded(world: World) -> None:
    for _ in range(2):
        await world.engine.connections.ensure(**NEW, config={"a": 1})
    for _ in range(2):
        await world.engine.connections.ensure(**NEW, config={"a": 2}, credentials=CREDENTIALS)

    rows = await audit_rows(world)
    assert [(row["action"], row["before"], row["after"]) for row in rows] == [
        ("connections.create", None, {"status": "active", "config": {"a": 1}}),
        (
            "connections.edit",
            {"config": {"a": 1}},
            {"config": {"a": 2}, "signs_in_with": ["token"]},
        ),
    ]


async def test_many_new_connections_are_one_row_for_each_tenant(world: World) -> None:
    new = [NewConnection(tenant, "github", str(n)) for n in range(3) for tenant in ("acme", "b")]
    await world.engine.connections.create_many(new[:2])

    added = await world.engine.connections.create_many(new)

    [_, _, *rows] = await audit_rows(world)
    ids = {one.id for one in added if one.is_new}
    assert {row["tenant_id"] for row in rows} == {"acme", "b"}
    assert [len(row["connection_ids"]) for row in rows] == [2, 2]
    assert {id_ for row in rows for id_ in row["connection_ids"]} == ids


async def test_each_change_of_what_is_no_connection_is_one_row(world: World) -> None:
    engine = world.engine.acting_as("alice")
    key, _ = await engine.access.create_key("deploy", tenant_id="acme", scope="read")
    for _ in range(2):  # the second time changes nothing
        await engine.access.revoke_key(key.id)
        await engine.budgets.set("github", calls=100, providers=("github",))
        await engine.gates.pause("github", because="their=token=canary")
        await engine.shares.set_weight("acme", 2)
        await engine.shares.set_cap(3, tenant_id="acme", provider_slug="github")
        await engine.shares.set_cap(4, provider_slug="github")
    for _ in range(2):
        await engine.budgets.clear("github")
        await engine.gates.resume("github")
        await engine.shares.set_cap(None, provider_slug="github")
    await engine.tenants.delete("acme")

    rows = await audit_rows(world)
    assert [
        (row["action"], row["tenant_id"], row["provider_slug"], row["subject"]) for row in rows
    ] == [
        ("keys.create", "acme", None, "deploy"),
        ("keys.revoke", "acme", None, "deploy"),
        ("budgets.set", None, "github", "github"),
        ("providers.pause", None, "github", "github"),
        ("tenants.set_weight", "acme", None, "acme"),
        ("caps.set", "acme", "github", "acme at github"),
        ("caps.set", None, "github", "github"),
        ("budgets.clear", None, "github", "github"),
        ("providers.resume", None, "github", "github"),
        ("caps.clear", None, "github", "github"),
        ("tenants.delete", "acme", None, "acme"),
    ]
    assert {row["actor"] for row in rows} == {"alice"}
    after = {row["action"]: row["after"] for row in rows[:5]}
    assert after["keys.create"]["begins_with"] == key.begins_with
    assert after["budgets.set"]["calls"] == 100
    assert after["providers.pause"] == {"paused": True, "because": "their=token=***"}
    assert after["tenants.set_weight"] == {"weight": 2}


async def test_what_is_done_to_jobs_is_recorded(world: World) -> None:
    connection = await world.connection()
    engine = world.engine.acting_as("alice")
    synced = await engine.trigger(connection.id)
    await engine.jobs.cancel(synced.id)
    retried = await engine.jobs.retry(synced.id)
    await engine.jobs.retry(retried.id)

    rows = await audit_rows(world)
    assert [(row["action"], row["before"], row["after"]["job_id"]) for row in rows] == [
        ("connections.sync", None, str(synced.id)),
        ("jobs.cancel", {"status": "queued"}, str(synced.id)),
        ("jobs.retry", {"status": "cancelled"}, str(synced.id)),
        ("jobs.retry", {"status": "queued"}, str(retried.id)),
    ]
    assert {row["connection_ids"][0] for row in rows} == {connection.id}


async def test_syncs_of_the_application_itself_are_not_recorded(world: World) -> None:
    connection = await world.connection()

    await world.engine.trigger(connection.id)

    assert await audit_rows(world) == []


async def test_a_rotation_is_recorded_where_there_is_something_to_rotate(world: World) -> None:
    connection = await world.connection()
    await world.engine.connections.set_credentials(connection.id, CREDENTIALS)
    await world.engine.secrets.rotate()
    await world.sql("UPDATE {schema}.credentials SET key_id = 'older'")
    await world.sql("DELETE FROM {schema}.audit")

    await world.engine.secrets.rotate()

    [row] = await audit_rows(world)
    assert (row["action"], row["after"]) == (
        "secrets.rotate",
        {"encrypted_with": "k1", "connections": 1},
    )


async def test_sessions_are_recorded_with_the_key_and_the_address(world: World) -> None:
    key, secret = await world.engine.access.create_key("deploy", tenant_id="acme")
    session = await world.engine.access.sign_in(secret, address="192.0.2.1")
    assert session is not None
    for _ in range(2):
        await world.engine.access.sign_out(session, address="192.0.2.2")

    [_, *rows] = await audit_rows(world)
    assert [(row["action"], row["address"]) for row in rows] == [
        ("sessions.begin", "192.0.2.1"),
        ("sessions.end", "192.0.2.2"),
    ]
    assert {(row["actor_kind"], row["actor"], row["key_id"]) for row in rows} == {
        ("tenant_key", "deploy", key.id)
    }
    assert {row["tenant_id"] for row in rows} == {"acme"}


async def test_what_is_refused_leaves_no_row(world: World) -> None:
    paused = await world.connection(status="revoked")
    present = await world.connection(id_=new_id())
    key: dict[str, Any] = {
        "tenant_id": "acme",
        "provider_slug": "github",
        "external_id": present.external_id,
    }
    for change in (
        world.engine.connections.pause(paused.id),
        world.engine.connections.resume(paused.id),
        world.engine.connections.create(**key),
        world.engine.connections.edit(present.id, Edit(config={"a": 1}), expected="older"),
        world.engine.connections.delete(present.id, expected="older"),
        world.engine.connections.pause(present.id, tenant_id="another"),
        world.engine.connections.delete(present.id, tenant_id="another"),
    ):
        with pytest.raises((ValueError, LookupError)):
            await change

    assert await audit_rows(world) == []


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
async def test_a_name_that_cannot_be_stored_is_refused(world: World, name: str) -> None:
    with pytest.raises(Invalid, match="actor"):
        world.engine.acting_as(name)
