"""A database that lost its last commits, and a follower that had read them."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from faults.kinds import kind
from faults.stage import PATIENCE_SECONDS, Stage
from faults.standby import Standby, back_up
from faults.waiting import TooLate, until
from syncline.model import START

SIGNALS_TO_LOSE = 200
STORED = "SELECT id FROM syncline.signals"


class Follower:
    """Follows signals on a direct connection, and counts what it received."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._position = START
        self.told: Counter[UUID] = Counter()

    async def catch_up(self) -> None:
        is_caught_up = False
        while not is_caught_up:
            found = await self._stage.engine.signals.follow(position=self._position, limit=1000)
            self.told.update(signal.id for signal in found.signals)
            self._position, is_caught_up = found.position, found.is_caught_up

    async def read_what_will_be_lost(self) -> None:
        await self.catch_up()
        enough = len(self.told) + SIGNALS_TO_LOSE

        async def has_read_enough() -> bool:
            await self.catch_up()
            return len(self.told) >= enough

        await until(has_read_enough, within=PATIENCE_SECONDS, what="signals that will be lost")

    async def judge(self) -> None:
        """Complain about stored signals that it did not receive, or received twice."""

        async def missed() -> int:
            await self.catch_up()
            return sum(id_ not in self.told for (id_,) in await self._stage.database.fetch(STORED))

        async def has_all() -> bool:
            return not await missed()

        try:
            await until(has_all, within=PATIENCE_SECONDS, what="a follower has every signal")
        except TooLate:
            self._stage.record.complain(f"a follower missed {await missed()} signals")
        if repeated := sum(count > 1 for count in self.told.values()):
            self._stage.record.complain(f"a follower received {repeated} signals again")


@kind("an older backup is restored under a follower", full=2, loses_claims=True)
async def restore(stage: Stage) -> None:
    """Work continues from what is stored, and the follower receives all of it once."""
    backup = stage.server._cluster.home / "backup"

    def put_back() -> None:
        stage.server.kill()
        shutil.rmtree(stage.server._cluster.data)
        backup.rename(stage.server._cluster.data)
        stage.server.start()

    await asyncio.to_thread(back_up, stage.database.url, stage.server, backup)
    await lose_commits(stage, put_back)


@kind("a lagging standby is promoted under a follower", full=2, loses_claims=True)
async def promote(stage: Stage) -> None:
    """Work continues on the new primary, and the follower receives what it stores once."""
    standby = Standby(stage.server, stage.database.url)

    def take_over() -> None:
        old, stage.server = stage.server, standby
        old.kill()
        standby.promote()
        move_address(stage.database.url, standby.url_like(stage.database.url))
        if isinstance(old, Standby):  # the first one is closed with the stage
            old.close()

    await asyncio.to_thread(standby.start)
    await asyncio.to_thread(standby.cut_off)
    await lose_commits(stage, take_over)


async def lose_commits(stage: Stage, break_history: Callable[[], None]) -> None:
    """Let a follower read signals, lose them, and check that it receives what replaces them."""
    follower = Follower(stage)
    await follower.read_what_will_be_lost()
    await asyncio.to_thread(break_history)
    await stage.measure_return(await stage.database.now())
    await stage.heal()  # every stream continues, under the numbers of the lost commits
    await follower.judge()


def move_address(old_url: str, new_url: str) -> None:
    """Point the address of a dead server to another, like a virtual IP."""
    old, new = socket_of(old_url), socket_of(new_url)
    old.unlink(missing_ok=True)
    os.symlink(new, old)


def socket_of(url: str) -> Path:
    query = parse_qs(urlsplit(url).query)
    return Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"
