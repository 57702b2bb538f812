"""§6: nothing relies on `search_path`, and nobody can put anything in front of what is meant."""

from collections.abc import AsyncIterator
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest

from support.databases import Databases, Mode
from support.world import open_world
from syncline import Engine, Settings, SyncResult
from syncline.store.listener import Listener
from syncline.store.pool import Pool

# Each would be found first by a session that trusts the path, and then say so.
HOSTILE = """
    CREATE FUNCTION public.shout() RETURNS boolean LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'a function of somebody else was called'; END $$;
    CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN pg_catalog.now() END $$;
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN pg_catalog.now() END $$;
    CREATE FUNCTION public.gen_random_uuid() RETURNS uuid LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN pg_catalog.gen_random_uuid() END $$;
    CREATE FUNCTION public.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN 'object' END $$;
    CREATE FUNCTION public.jsonb_set(jsonb, text[], jsonb, boolean DEFAULT true) RETURNS jsonb
        LANGUAGE sql AS $$ SELECT CASE WHEN public.shout() THEN $1 END $$;
    CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN $1 END $$;
    CREATE FUNCTION public.cardinality(anyarray) RETURNS int LANGUAGE sql
        AS $$ SELECT CASE WHEN public.shout() THEN 1 END $$;
    CREATE FUNCTION public.equal(text, text) RETURNS boolean LANGUAGE sql
        AS $$ SELECT public.shout() $$;
    CREATE OPERATOR public.= (FUNCTION = public.equal, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION public.equal(uuid, uuid) RETURNS boolean LANGUAGE sql
        AS $$ SELECT public.shout() $$;
    CREATE OPERATOR public.= (FUNCTION = public.equal, LEFTARG = uuid, RIGHTARG = uuid);
"""


@pytest.fixture
async def hostile_url(databases: Databases, mode: Mode) -> AsyncIterator[str]:
    """A database whose sessions find what somebody put into `public` first."""
    server = databases.server(mode)
    url = server.create_database()
    database = unquote(urlsplit(url).path.removeprefix("/"))
    session = await asyncpg.connect(url)
    await session.execute(HOSTILE)
    await session.execute(
        f'ALTER ROLE CURRENT_USER IN DATABASE "{database}" SET search_path = public, pg_catalog'
    )
    await session.close()
    yield url
    server.drop_database(url)


@pytest.mark.parametrize("pgbouncer", [False, True], ids=["own sessions", "behind a pooler"])
async def test_nothing_of_somebody_else_is_called(hostile_url: str, pgbouncer: bool) -> None:
    async with Engine(Settings(database_url=hostile_url, pgbouncer=pgbouncer)) as engine:
        assert await engine.migrate()
    async with open_world(hostile_url, pgbouncer=pgbouncer) as world:
        engine = world.engine
        connection = await engine.connections.create(
            tenant_id="acme", provider_slug="github", external_id="1"
        )
        world.script(SyncResult(next_cursor=1))
        assert (await world.tick()).scheduled == 1
        assert await world.run_due() == 1
        await engine.trigger(connection.id)
        [queued, _] = await engine.jobs.list(connection_id=connection.id)
        await engine.jobs.cancel(queued.id)
        assert (await engine.connections.get(connection.id)).metadata["sync"]["cursor"] == 1
        await engine.doctor.diagnose()
        assert await engine.verify() == []


async def test_a_listener_looks_nowhere_else_either(hostile_url: str) -> None:
    pool = Pool(hostile_url, "syncline", size=1)
    listener = Listener(hostile_url, "channel", lambda _: None, pool.session_settings)
    await listener.keep_listening()
    try:
        path = await listener._connection.fetchval("SHOW search_path")
    finally:
        listener.close()

    assert path == "pg_catalog, pg_temp"
