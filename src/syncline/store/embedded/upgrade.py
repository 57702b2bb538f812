"""Move the data folder to a newer major version of Postgres, keeping the old one aside."""

import asyncio
import itertools
import re
from pathlib import Path

from syncline.errors import EmbeddedError
from syncline.store.embedded.address import USER, make_socket_folder
from syncline.store.embedded.binaries import Binaries, binaries_of, find_binaries
from syncline.store.embedded.cluster import Cluster
from syncline.store.embedded.filelock import FileLock
from syncline.store.embedded.launcher import choose_launcher


async def move_to_newest(cluster: Cluster) -> str:
    """Move the data; return a sentence about it. If interrupted, run it again."""
    cluster.finish_upgrade()
    major = cluster.major()
    found = await asyncio.to_thread(find_binaries)
    if major is None or not found or major >= found[0].major:
        state = "does not exist yet" if major is None else f"is already on Postgres {major}"
        return f"Nothing to do: the embedded database {state}."
    old, new = binaries_of(major, found), found[0]
    try:
        await cluster.start(old)  # only its own version can recover the data of a killed server
    finally:
        await cluster.stop()
    with FileLock(cluster.lock_path) as lock:
        if not lock.try_exclusive():
            raise EmbeddedError("the embedded database is in use: stop its users first")
        await _copy(cluster, lock, old, new)
    kept = _free_name(cluster.home, f"postgres-{major}")
    # The new folder is complete from here on; `finish_upgrade` repeats a missed last rename.
    cluster.unfinished.rename(cluster.upgraded)
    cluster.data.rename(kept)
    cluster.finish_upgrade()
    return (
        f"Moved the embedded database from Postgres {major} to {new.major}. The old data is kept "
        f"in {kept}; remove it when you no longer want a way back."
    )


async def _copy(cluster: Cluster, lock: FileLock, old: Binaries, new: Binaries) -> None:
    """Build the new data folder beside the old one, which is left unchanged."""
    launcher = await asyncio.to_thread(choose_launcher, new, cluster.home)
    control = [*launcher.prefix, old.path("pg_controldata"), str(cluster.data)]
    described = await cluster.run(control, lock)
    await cluster.discard_unfinished()
    await cluster.create(lock, new, launcher, *_checksum_options(described, new))
    folders = ["--old-bindir", str(old.folder), "--new-bindir", str(new.folder)]
    folders += ["--old-datadir", str(cluster.data), "--new-datadir", str(cluster.unfinished)]
    folders += ["--socketdir", str(make_socket_folder(cluster.home))]
    move = [new.path("pg_upgrade"), f"--username={USER}", *folders]
    await cluster.run([*launcher.prefix, *move], lock)
    (cluster.home / "delete_old_cluster.sh").unlink(missing_ok=True)  # keep the way back


def _checksum_options(described: str, new: Binaries) -> list[str]:
    """Return the options that give the new folder the old one's page checksums."""
    if re.search(r"checksum version: +0$", described, re.MULTILINE) is None:
        return ["--data-checksums"]
    return ["--no-data-checksums"] if new.major >= 18 else []  # new in 18


def _free_name(home: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
    return next(path for path in map(home.joinpath, names) if not path.exists())
