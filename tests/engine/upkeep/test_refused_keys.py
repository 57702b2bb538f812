"""Invalid keys are counted by address, so that whoever guesses them cannot fill the audit."""

import pytest

from support.world import World
from syncline.clock import clock_from
from syncline.engine.upkeep.key_uses import MOST_ADDRESSES, OTHERS, KeyUses
from syncline.store.pool import Pool

REFUSED = "SELECT address, count FROM {schema}.audit WHERE action = 'sessions.refuse' ORDER BY id"


async def refused(world: World) -> list[tuple[str, int]]:
    return [tuple(row) for row in await world.sql(REFUSED)]


async def test_they_are_one_row_for_each_address_and_save(world: World, pool: Pool) -> None:
    uses = KeyUses(pool, clock_from(world.clock))
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        uses.refuse(address)

    await uses.save()
    await uses.save()

    assert await refused(world) == [("192.0.2.1", 2), ("192.0.2.2", 1)]
    uses.refuse("192.0.2.1")
    await uses.save()
    assert (await refused(world))[-1] == ("192.0.2.1", 1)


async def test_many_addresses_share_a_row(world: World, pool: Pool) -> None:
    uses = KeyUses(pool, clock_from(world.clock))
    for number in range(3 * MOST_ADDRESSES):
        uses.refuse(f"2001:db8:{number:x}::/64")

    await uses.save()

    rows = await refused(world)
    assert len(rows) == MOST_ADDRESSES + 1
    assert rows[-1] == (OTHERS, 2 * MOST_ADDRESSES)


async def test_none_is_lost_if_the_database_is_away(world: World, pool: Pool) -> None:
    uses = KeyUses(pool, clock_from(world.clock))
    uses.refuse("192.0.2.1")
    await world.sql("ALTER TABLE {schema}.audit RENAME TO away")
    with pytest.raises(Exception, match="audit"):
        await uses.save()
    await world.sql("ALTER TABLE {schema}.away RENAME TO audit")

    await uses.save()

    assert await refused(world) == [("192.0.2.1", 1)]
