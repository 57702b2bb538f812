"""The backlog is counted in SQL, which must read intervals exactly as the policy does."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.world import World, at
from syncline.policy.schedule import read_sync
from syncline.settings import Settings
from syncline.store.pool import Pool
from syncline.store.queue import schedule

RULES = Settings(scheduler={"max_overridden_interval_seconds": 7200}).scheduler.rules
NOW = at("12:00")
EDGES = ["0", "-0", "1", "59", "60", "61", "899", "900", "901", "7199", "7200", "7201"]
SPELLINGS = ["9e2", "9E+2", "900.0", "900.00", "90e1", "6.0e1", "0.9e3", "-900", "1e400", "1e-400"]
LARGE = ["999999999", "1000000000", "2147483648", "9" * 63, "9" * 64, "9" * 65, "9" * 5000]
OTHERS = ["null", "true", "[]", "[900]", "{}", '{"900": 900}', '""', '"often"']
TEXTS = [json.dumps(text) for text in ("900", "900 ", " 900", "900\n", "\n900", "9" * 100)]
DIGITS = ['"\N{FULLWIDTH DIGIT NINE}00"', '"\N{ARABIC-INDIC DIGIT NINE}00"']
TABLE = EDGES + SPELLINGS + LARGE + OTHERS + TEXTS + DIGITS

json_texts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10_000)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.from_regex(r"[0-9]{1,10}", fullmatch=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("a"), inner),
    max_leaves=4,
).map(json.dumps)


@pytest.fixture
async def pool(world: World) -> AsyncIterator[Pool]:
    pool = Pool(world.url, world.settings.schema, size=1)
    await pool.open()
    yield pool
    await pool.close()


async def test_every_spelling_is_read_alike(world: World, pool: Pool) -> None:
    await check(world, pool, TABLE)


@given(st.lists(json_texts, min_size=1, max_size=100))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_is_written_is_read_alike(
    world: World, pool: Pool, intervals: list[str]
) -> None:
    await check(world, pool, intervals)


async def check(world: World, pool: Pool, intervals: Sequence[str]) -> None:
    """Let each connection's slot be now, by the policy, and then a second from now."""
    await world.sql("DELETE FROM {schema}.connections")
    rows = await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, metadata)"
        " SELECT 'acme', 'github', place, jsonb_build_object("
        "            'sync', jsonb_build_object('interval_seconds', value))"
        "   FROM unnest($1::jsonb[]) WITH ORDINALITY AS given (value, place) RETURNING id",
        intervals,
    )
    ids = [row["id"] for row in rows]
    async with pool.transaction() as tx:
        candidates = await schedule.read_candidates(tx, ids)
    planned = [read_sync(candidate.stored, RULES).interval for candidate in candidates]

    for until_slot, overdue in ((timedelta(), len(ids)), (timedelta(seconds=1), 0)):
        await world.sql(
            "UPDATE {schema}.connections c SET last_finished_at = given.last"
            "  FROM unnest($1::uuid[], $2::timestamptz[]) AS given (id, last)"
            " WHERE c.id = given.id",
            ids,
            [NOW + until_slot - interval for interval in planned],
        )
        async with pool.transaction() as tx:
            assert await schedule.count_overdue(tx, ids, RULES, now=NOW) == overdue
