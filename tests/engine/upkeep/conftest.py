"""The parts that keep a database in order, on the database of the world and by its clock."""

from collections.abc import AsyncIterator

import pytest

from support.world import World
from syncline.clock import clock_from
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.engine.upkeep.key_uses import KeyUses
from syncline.engine.upkeep.maintenance import Maintenance
from syncline.engine.upkeep.retention import Pruner
from syncline.store.pool import Pool


@pytest.fixture
async def pool(world: World) -> AsyncIterator[Pool]:
    pool = Pool(world.url, world.schema, size=1)
    await pool.open()
    yield pool
    await pool.close()


@pytest.fixture
def maintenance(world: World, pool: Pool) -> Maintenance:
    """Maintenance that reports to the telemetry of the world's engine."""
    files = ConnectorFiles(pool, {})
    telemetry = world.engine.telemetry.upkeep
    clock = clock_from(world.clock)
    return Maintenance(pool, clock, telemetry, KeyUses(pool, clock), files)


@pytest.fixture
def pruner(world: World, pool: Pool) -> Pruner:
    """A pruner in a process that has never beaten."""
    clock = clock_from(world.clock)
    heartbeat = Heartbeat(pool, clock, {}, count_slots=lambda: (0, 0))
    return Pruner(pool, world.settings, clock, heartbeat, world.engine.telemetry.upkeep)
