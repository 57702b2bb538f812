"""Credentials in the database: sealed, bound to their row, open only while a run lasts."""

import copy
import pickle
from typing import Any

import pytest

from support.httpserver import Reply, http_server, json_reply
from support.world import World
from syncline import Connection, Connector, SyncResult, Unauthorized
from syncline.errors import SettingsError
from syncline.http.credentials import Credentials
from syncline.keyring import new_key
from syncline.services.connections import NewConnection
from syncline.testing import ScriptedConnector

SECRET = {"token": "canary-token"}


async def add(world: World, credentials: Any = SECRET, **options: Any) -> Connection:
    return await world.engine.connections.create(
        tenant_id="acme",
        provider_slug="github",
        external_id=options.pop("external_id", "1"),
        credentials=credentials,
        **options,
    )


class Keeper:
    """A line of a script that keeps the connection that it was called with."""

    def __init__(self) -> None:
        self.seen: list[Connection] = []

    def __call__(self, connection: Connection, cursor: Any) -> SyncResult:
        self.seen.append(connection)
        return SyncResult()


async def run(world: World, connection: Connection) -> Connection:
    """Run one job and return the connection as its connector saw it."""
    keeper = Keeper()
    world.connector.script.append(keeper)
    await world.engine.trigger(connection.id)
    await world.engine.run_due()
    [seen] = keeper.seen
    return seen


async def test_a_run_has_the_credentials_and_nothing_else_does(world: World) -> None:
    connection = await add(world)

    seen = await run(world, connection)

    assert dict(seen.credentials) == SECRET
    for found in (connection, await world.engine.connections.get(connection.id)):
        assert found.credentials is None
    assert [c.credentials for c in await world.engine.connections.list()] == [None]


async def test_many_connections_at_once_keep_their_credentials(world: World) -> None:
    keyed, empty = (
        NewConnection("acme", "github", "1", credentials=SECRET),
        NewConnection("acme", "github", "2", credentials={}),
    )
    assert "canary" not in repr(keyed)

    [added, refused] = await world.engine.connections.create_many([keyed, empty])

    assert added.id is not None
    seen = await run(world, await world.engine.connections.get(added.id))
    assert dict(seen.credentials) == SECRET
    assert refused.problem is not None
    assert refused.problem.field == "credentials"


async def test_a_connection_without_credentials_has_none(world: World) -> None:
    assert (await run(world, await add(world, None))).credentials is None


async def test_credentials_do_not_show_themselves(world: World) -> None:
    seen = (await run(world, await add(world))).credentials

    assert isinstance(seen, Credentials)
    for text in (repr(seen), str(seen), f"{seen}", repr([seen]), repr(copy.deepcopy(seen))):
        assert "canary" not in text
    with pytest.raises(TypeError):
        pickle.dumps(seen)


async def test_without_a_key_nothing_is_stored(world: World) -> None:
    async with world.another_engine(secret_keys=None) as keyless:
        with pytest.raises(SettingsError, match="set SYNCLINE_SECRET_KEYS"):
            await add(keyless)
        connection = await add(keyless, None)
        with pytest.raises(SettingsError, match="set SYNCLINE_SECRET_KEYS"):
            await keyless.engine.connections.set_credentials(connection.id, SECRET)

    assert await world.sql("SELECT * FROM {schema}.credentials") == []


async def test_bad_credentials_are_refused_without_being_quoted(world: World) -> None:
    refused_ones: list[Any] = [{}, [], "canary", {"a": float("nan")}, {"a": "canary" * 20_000}]
    for bad in refused_ones:
        with pytest.raises(ValueError, match=r"^credentials") as refused:
            await add(world, bad)

        assert "canary" not in str(refused.value)


async def test_a_duplicate_key_leaves_the_other_connections_credentials(world: World) -> None:
    connection = await add(world)
    with pytest.raises(ValueError, match="already has the key"):
        await add(world, {"token": "another"})

    assert dict((await run(world, connection)).credentials) == SECRET


async def test_ensure_leaves_credentials_that_are_there(world: World) -> None:
    """They may have been renewed since the application was written."""
    key: dict[str, Any] = {"tenant_id": "acme", "provider_slug": "github", "external_id": "1"}
    bare = await world.engine.connections.ensure(**key)
    await world.engine.connections.ensure(**key, credentials=SECRET)
    await world.engine.connections.ensure(**key, credentials={"token": "older"})

    seen = await run(world, bare)

    assert dict(seen.credentials) == SECRET


async def test_credentials_that_cannot_be_read_are_reported_with_the_cause(world: World) -> None:
    job = await world.engine.trigger((await add(world)).id)
    async with world.session() as session:
        await session.execute("ALTER TABLE syncline.credentials RENAME COLUMN sealed TO gone")
        try:
            await world.engine.run_due()
        finally:
            await session.execute("ALTER TABLE syncline.credentials RENAME COLUMN gone TO sealed")

    error = (await world.get_job(job.id)).error
    assert error["message"].startswith("the credentials could not be read: UndefinedColumnError: ")


async def test_a_row_moved_to_another_connection_does_not_open(world: World) -> None:
    one, other = await add(world), await add(world, {"token": "x"}, external_id="2")
    await world.sql(
        "UPDATE {schema}.credentials c SET sealed = o.sealed FROM {schema}.credentials o"
        " WHERE c.connection_id = $1 AND o.connection_id = $2",
        *(other.id, one.id),
    )

    job = await world.engine.trigger(other.id)
    await world.engine.run_due()

    assert (await world.get_job(job.id)).error["class"] == "Permanent"
    found = await world.engine.connections.get(other.id)
    assert found.status == "error"
    assert "do not open with the key 'k1'" in found.status_reason["why"]


async def test_a_worker_without_the_key_leaves_the_job_to_others(world: World) -> None:
    connection = await add(world)
    async with world.another_engine(secret_keys=new_key("k2")) as stranger:
        job = await stranger.engine.trigger(connection.id)
        await stranger.engine.run_due()

    found = await world.get_job(job.id)
    assert (found.status, found.error["class"]) == ("queued", "Transient")
    assert "the key 'k1' is not in SYNCLINE_SECRET_KEYS" in found.error["message"]


async def test_credentials_go_with_their_connection(world: World) -> None:
    connection = await add(world)

    await world.engine.connections.delete(connection.id)

    assert await world.sql("SELECT * FROM {schema}.credentials") == []


async def test_new_credentials_resume_a_connection_with_its_cursor(world: World) -> None:
    connection = await add(world)
    world.script(SyncResult(next_cursor={"page": 7}), Unauthorized("revoked"))
    for _ in range(2):
        await world.engine.trigger(connection.id)
        await world.engine.run_due()
    stopped = await world.engine.connections.get(connection.id)
    assert (stopped.status, stopped.status_reason["why"]) == ("needs_reauth", "revoked")

    resumed = await world.engine.connections.set_credentials(connection.id, {"token": "new"})

    assert (resumed.status, resumed.status_reason) == ("active", None)
    assert dict((await run(world, resumed)).credentials) == {"token": "new"}
    assert world.connector.calls[-1] == (connection.id, {"page": 7})


async def test_new_credentials_leave_a_paused_connection_paused(world: World) -> None:
    connection = await add(world)
    await world.engine.connections.pause(connection.id)

    changed = await world.engine.connections.set_credentials(connection.id, {"token": "new"})

    assert changed.status == "paused"


async def test_new_credentials_end_a_needs_reauth_from_before_a_pause(world: World) -> None:
    connection = await add(world)
    world.script(Unauthorized("revoked"))
    await world.engine.trigger(connection.id)
    await world.engine.run_due()
    paused = await world.engine.connections.pause(connection.id)
    assert paused.status_reason["before"]["status"] == "needs_reauth"

    changed = await world.engine.connections.set_credentials(connection.id, {"token": "new"})
    resumed = await world.engine.connections.resume(connection.id)

    assert (changed.status, "before" in changed.status_reason) == ("paused", False)
    assert (resumed.status, resumed.status_reason) == ("active", None)


async def test_credentials_can_be_removed(world: World) -> None:
    connection = await add(world)

    await world.engine.connections.set_credentials(connection.id, None)

    assert (await run(world, connection)).credentials is None


async def test_another_tenant_cannot_set_credentials(world: World) -> None:
    connection = await add(world)

    with pytest.raises(LookupError):
        await world.engine.connections.set_credentials(
            connection.id, {"token": "x"}, tenant_id="other"
        )


async def test_claims_read_no_credentials_where_nobody_has_any(world: World) -> None:
    """One more statement for those who need it, none for those who do not."""
    connection = await add(world, None)
    await world.sql("ALTER TABLE {schema}.credentials RENAME TO out_of_reach")
    try:
        assert (await run(world, connection)).credentials is None
    finally:
        await world.sql("ALTER TABLE {schema}.out_of_reach RENAME TO credentials")


class Desk(Connector):
    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=connection.config["url"]) as http:
            return SyncResult(next_cursor=(await http.get()).json())


async def test_the_http_client_sends_the_credentials(world: World) -> None:
    async with (
        http_server([json_reply({"at": 1}), Reply(401)]) as server,
        world.another_engine([Desk(), ScriptedConnector("github")]) as own,
    ):
        connection = await own.engine.connections.create(
            tenant_id="acme",
            provider_slug="desk",
            external_id="1",
            config={"url": server.url},
            credentials=SECRET,
        )
        for _ in range(2):
            await own.engine.trigger(connection.id)
            await own.engine.run_due()
        found = await own.engine.connections.get(connection.id)

    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer canary-token"] * 2
    assert found.status == "needs_reauth"
    assert found.metadata["sync"]["cursor"] == {"at": 1}


async def test_a_rotation_puts_everything_under_the_first_key(world: World) -> None:
    connections = [await add(world, external_id=str(n)) for n in range(5)]
    told: list[Any] = []
    keys = f"{new_key('k2')},{world.settings.secret_keys.get_secret_value()}"  # type: ignore[union-attr]
    async with world.another_engine(secret_keys=keys) as newer:
        rotation = await newer.engine.secrets.rotate(told.append)
        again = await newer.engine.secrets.rotate()

    assert (rotation.done, rotation.left, rotation.unreadable) == (5, 0, ())
    assert (told[-1].done, told[-1].left) == (5, 0)
    assert again.done == 0
    async with world.another_engine(secret_keys=keys.partition(",")[0]) as newest:
        assert dict((await run(newest, connections[0])).credentials) == SECRET


async def test_a_rotation_goes_on_where_it_was_interrupted(world: World) -> None:
    for n in range(5):
        await add(world, external_id=str(n))
    keys = f"{new_key('k2')},{world.settings.secret_keys.get_secret_value()}"  # type: ignore[union-attr]

    class Interrupted(Exception):
        pass

    def interrupt(_: Any) -> None:
        raise Interrupted

    async with world.another_engine(secret_keys=keys) as newer:
        with pytest.raises(Interrupted):
            await newer.engine.secrets.rotate(interrupt, batch_size=2)
        assert (await newer.engine.secrets.rotate()).done == 3


async def test_a_rotation_reports_what_it_cannot_open(world: World) -> None:
    connection = await add(world)
    async with world.another_engine(secret_keys=new_key("k2")) as stranger:
        rotation = await stranger.engine.secrets.rotate()

    assert (rotation.done, rotation.unreadable) == (0, (connection.id,))
    assert dict((await run(world, connection)).credentials) == SECRET
