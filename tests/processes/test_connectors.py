"""Connectors in workers that are killed in the middle: nothing is lost, nothing doubled."""

import json
import shutil
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from support.feeds import item, rss, serving
from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from support.repositories import GitServer, Repo

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing"),
]

RECOVERY_SECONDS = LEASE_SECONDS + 15


async def add_due_job(fleet: Fleet, provider: str, **config: Any) -> None:
    await fleet.sql(
        "WITH added AS (INSERT INTO syncline.connections"
        " (tenant_id, provider_slug, external_id, config) VALUES ('acme', $1, 'a', $2)"
        " RETURNING id) INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)"
        " SELECT 'acme', $1, id FROM added",
        *(provider, json.dumps(config)),
    )


async def kill_midway_and_finish(fleet: Fleet, home: Path, *, whole: int) -> None:
    """Kill the worker when some of the signals are stored, and let another one finish."""
    settings = {"http__allow_private": "*", "home": home}
    victim = fleet.start_worker(**settings)
    await until(lambda: has_signals(fleet, 4), within=30)
    victim.kill()
    await exit_code(victim, within=5)
    assert await fleet.count("signals") < whole

    fleet.start_worker(**settings)
    await until(lambda: has_signals(fleet, whole), within=RECOVERY_SECONDS + 15)
    await until(lambda: is_idle(fleet), within=RECOVERY_SECONDS)


async def has_signals(fleet: Fleet, number: int) -> bool:
    return await fleet.count("signals") >= number


async def is_idle(fleet: Fleet) -> bool:
    return await fleet.count("sync_jobs", "status IN ('queued', 'running')") == 0


async def stored(fleet: Fleet, field: str) -> list[str]:
    rows = await fleet.sql(f"SELECT payload->>'{field}' FROM syncline.signals")
    return [row[0] for row in rows]


async def test_a_feed_is_stored_once_though_its_worker_is_killed(
    fleet: Fleet, tmp_path: Path
) -> None:
    with serving() as site:
        url = site.put(rss(*(item(n) for n in range(400))))
        await add_due_job(fleet, "feed", url=url, page_size=1)
        await kill_midway_and_finish(fleet, tmp_path, whole=400)

    assert sorted(await stored(fleet, "id")) == sorted(f"n-{n}" for n in range(400))


async def test_a_repository_is_stored_once_though_its_worker_is_killed(
    fleet: Fleet, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "repo")
    commits = [repo.commit(f"change {number}") for number in range(15)]
    await add_due_job(fleet, "git", url=f"file://{repo.folder}", page_size=1)

    await kill_midway_and_finish(fleet, tmp_path, whole=15)

    assert sorted(await stored(fleet, "sha")) == sorted(commits)


async def test_a_worker_killed_while_it_fetches_leaves_no_mirror_behind_that_is_stuck(
    fleet: Fleet, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "repo")
    commits = [repo.commit(f"change {number}") for number in range(5)]
    stuck, released = Event(), Event()
    handler = type(
        "Handler",
        (GitServer,),
        {"root": tmp_path, "stuck": stuck, "released": released, "slices": 1},
    )
    settings = {"http__allow_private": "*", "home": tmp_path}
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.02))
        thread.start()
        await add_due_job(fleet, "git", url=f"http://127.0.0.1:{server.server_port}/repo/.git")
        victim = fleet.start_worker(**settings)
        await until(stuck.is_set, within=30)
        victim.kill()
        await exit_code(victim, within=5)
        released.set()
        fleet.start_worker(**settings)
        await until(lambda: has_signals(fleet, 5), within=RECOVERY_SECONDS + 15)
        server.shutdown()
        thread.join()

    assert sorted(await stored(fleet, "sha")) == sorted(commits)
