"""The last use of keys, written beside what others write."""

from datetime import timedelta

from support.sessions import actor
from support.world import World
from syncline.store.data import keys


async def test_writing_uses_waits_for_nobody(world: World) -> None:
    """A process that holds a key's row writes the same there: no waiting, and no deadlock."""
    held, _ = await world.engine.access.create_key("ann")
    free, _ = await world.engine.access.create_key("bob")
    uses = {held.id: world.clock(), free.id: world.clock()}

    async with world.session() as session, session.transaction():
        await session.execute(
            world.qualified("SELECT FROM {schema}.api_keys WHERE id = $1 FOR UPDATE"), held.id
        )
        async with actor(world) as writer:
            assert await keys.save_uses(writer.tx, uses) == 1
            await writer.commit()

    found = {key.id: key.last_used_at for key in await world.engine.access.list_keys()}
    assert found == {held.id: None, free.id: world.clock()}


async def test_an_earlier_use_does_not_overwrite_a_later_one(world: World) -> None:
    key, _ = await world.engine.access.create_key("ann")
    later, earlier = world.clock(), world.clock() - timedelta(seconds=5)

    async with actor(world) as writer:
        assert await keys.save_uses(writer.tx, {key.id: later}) == 1
        assert await keys.save_uses(writer.tx, {key.id: earlier}) == 0
        await writer.commit()

    [found] = await world.engine.access.list_keys()
    assert found.last_used_at == later
