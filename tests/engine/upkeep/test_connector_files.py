"""What connectors keep on a host goes with the connection, and only with it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from threading import Event
from uuid import UUID

import pytest

from support.repositories import GitServer, Repo, serve
from support.world import World, open_world
from syncline import Connection, Connector, Engine, Settings, SyncResult
from syncline.connectors.git import GitCommits


class Keeper(Connector):
    """A connector that keeps a file of every connection it ran."""

    provider = "keeper"

    def __init__(self) -> None:
        self.forgot = Event()

    async def sync(self, connection: Connection, cursor: object) -> SyncResult:
        assert self.state_folder is not None
        self.state_folder.mkdir(parents=True, exist_ok=True)
        (self.state_folder / connection.id.hex).touch()
        return SyncResult()

    def connections_with_files(self) -> Collection[UUID]:
        if self.state_folder is None or not self.state_folder.exists():
            return ()
        return {UUID(hex=path.name) for path in self.state_folder.iterdir()}

    def forget(self, connection_ids: Collection[UUID]) -> None:
        assert self.state_folder is not None
        for connection_id in connection_ids:
            (self.state_folder / connection_id.hex).unlink(missing_ok=True)
        self.forgot.set()


@pytest.fixture
async def world(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setenv("SYNCLINE_HOME", str(tmp_path))
    async with open_world(database_url, connectors=[Keeper()]) as world:
        yield world


def kept(world: World) -> set[UUID]:
    return set(world.engine.providers["keeper"].connections_with_files())


async def ran(world: World, *names: str) -> list[UUID]:
    """Return connections that have run once."""
    made = [
        await world.engine.connections.create(
            tenant_id="acme" if name.startswith("a") else "birch",
            provider_slug="keeper",
            external_id=name,
        )
        for name in names
    ]
    for connection in made:
        await world.engine.trigger(connection.id)
    await world.engine.run_due()
    return [connection.id for connection in made]


async def test_a_deleted_connection_leaves_no_files(world: World) -> None:
    gone, stays = await ran(world, "a1", "a2")
    assert kept(world) == {gone, stays}

    await world.engine.connections.delete(gone)

    assert kept(world) == {stays}


async def test_a_deleted_tenant_leaves_no_files(world: World) -> None:
    _, _, stays = await ran(world, "a1", "a2", "b1")

    await world.engine.tenants.delete("acme")

    assert kept(world) == {stays}


async def test_what_another_process_deleted_is_swept(world: World) -> None:
    gone, stays = await ran(world, "a1", "a2")
    await world.sql("DELETE FROM {schema}.connections WHERE id = $1", gone)
    assert kept(world) == {gone, stays}

    keeper = world.engine.providers["keeper"]
    assert isinstance(keeper, Keeper)
    running = asyncio.create_task(world.engine.run(handle_signals=False))
    swept = await asyncio.to_thread(keeper.forgot.wait, 20)
    world.engine.stop()

    assert await running
    assert swept
    assert kept(world) == {stays}


def test_two_installations_keep_their_files_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each would take the other's files for those of deleted connections."""
    monkeypatch.setenv("SYNCLINE_HOME", str(tmp_path))
    folders = []
    for url, schema in (
        ("postgresql://a:one@db/app", "syncline"),
        ("postgresql://b:two@db/app", "syncline"),
        ("postgresql://a@db/app", "other"),
        ("postgresql://a@db2/app", "syncline"),
        ("postgresql:///app?host=/run/one", "syncline"),
        ("postgresql:///app?host=/run/two", "syncline"),
        ("postgresql:///app?host=/run/two&password=x", "syncline"),
    ):
        engine = Engine(Settings(database_url=url, schema=schema), connectors=[Keeper()])
        folders.append(engine.providers["keeper"].state_folder)

    assert folders[0] == folders[1]  # a new password makes no new installation
    assert folders[5] == folders[6]
    assert len(set(folders)) == 5


@pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")
async def test_a_mirror_goes_with_its_connection(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_HOME", str(tmp_path / "home"))
    repo = Repo(tmp_path / "repo")
    repo.commit("one")
    handler = type("Handler", (GitServer,), {"root": tmp_path})
    git = GitCommits()
    with serve(handler) as address:
        async with open_world(
            database_url, connectors=[git], http={"allow_private": ["git"]}
        ) as world:
            ids = []
            for tenant in ("acme", "birch"):
                connection = await world.engine.connections.create(
                    tenant_id=tenant,
                    provider_slug="git",
                    external_id="repo",
                    config={"url": f"http://{address}/repo/.git"},
                )
                await world.engine.trigger(connection.id)
                ids.append(connection.id)
            await world.engine.run_due()
            before = [*(tmp_path / "home").rglob("HEAD")]
            await world.engine.connections.delete(ids[0])
            await world.engine.tenants.delete("birch")

    assert len(before) == 2
    assert [*(tmp_path / "home").rglob("HEAD")] == []
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
