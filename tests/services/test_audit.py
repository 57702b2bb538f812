"""R4: who changed what, in the transaction of the change."""

from typing import Any

import pytest

from support.world import World, at
from syncline.errors import Invalid


async def audit_rows(world: World) -> list[dict[str, Any]]:
    """Return what the audit holds, oldest first."""
    return [dict(row) for row in await world.sql("SELECT * FROM {schema}.audit ORDER BY id")]


async def test_a_pause_is_recorded_with_who_did_it_and_what_changed(world: World) -> None:
    connection = await world.connection()

    await world.engine.acting_as("alice").connections.pause(connection.id, reason="they asked")

    [row] = await audit_rows(world)
    assert (row["actor_kind"], row["actor"]) == ("application", "alice")
    assert (row["action"], row["acted_at"]) == ("connections.pause", at("12:00"))
    assert (row["tenant_id"], row["provider_slug"]) == ("acme", "github")
    assert (row["subject"], row["connection_ids"]) == (connection.external_id, [connection.id])
    assert row["before"] == '{"status": "active"}'
    assert row["after"] == '{"why": "they asked", "status": "paused"}'


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


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
async def test_a_name_that_cannot_be_stored_is_refused(world: World, name: str) -> None:
    with pytest.raises(Invalid, match="actor"):
        world.engine.acting_as(name)
