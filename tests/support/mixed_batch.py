"""A batch of connections that are claimed, run and settled together, most of them badly."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from support.world import World, at, in_short, open_world
from syncline import Connection, Connector, Signal, SyncResult
from syncline.model import Job

HEALTHY_PAGE = SyncResult(
    [Signal("seen", at("11:00"), {"text": "fine"}, dedupe_key="1")], next_cursor={"page": 2}
)
MAX_ERROR_BYTES = 4096
Answer = Callable[[], Any]


class Answering(Connector):
    """Answers each connection as the test says; the others get a healthy page."""

    provider = "github"

    def __init__(self) -> None:
        self.answers: dict[UUID, Answer] = {}

    async def sync(self, connection: Connection, cursor: Any) -> Any:
        return self.answer(connection)

    def answer(self, connection: Connection) -> Any:
        return self.answers.get(connection.id, lambda: HEALTHY_PAGE)()


class AnsweringInThread(Answering):
    def sync(self, connection: Connection, cursor: Any) -> Any:
        return self.answer(connection)


class MixedBatch:
    """Bad connections by name, with a healthy one before and after them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connections: dict[str, Connection] = {}
        self.jobs: dict[str, Job] = {}
        self.healthy: list[Connection] = []

    async def run(self, answers: Mapping[str, Answer]) -> None:
        """Run one due job of each in one batch, and check that the healthy ones succeeded."""
        connector = self.world.engine.providers["github"]
        assert isinstance(connector, Answering)
        self.healthy.append(await self._add_connection())
        for name, answer in answers.items():
            self.connections[name] = await self._add_connection()
            connector.answers[self.connections[name].id] = answer
        self.healthy.append(await self._add_connection())

        assert await self.world.run_due() == len(answers) + 2
        for name, connection in self.connections.items():
            [self.jobs[name], *_] = await self.world.jobs(connection)
        await self._assert_healthy_ones_succeeded()

    async def assert_nothing_was_stored(self, name: str) -> None:
        connection, job = self.connections[name], self.jobs[name]
        assert (job.status, job.attempts) == ("queued", 1), name
        assert job.retry_after is not None, name
        assert job.retry_after > self.world.clock(), name
        assert await self.world.signals(connection) == [], name
        stored = await self.world.engine.connections.get(connection.id)
        assert (stored.status, stored.metadata["sync"]["cursor"]) == ("active", "before"), name

    async def assert_errors_are_bounded(self) -> None:
        rows = await self.world.sql(
            "SELECT error::text, octet_length(error::text) AS bytes FROM {schema}.sync_jobs"
            " WHERE error IS NOT NULL"
        )
        for row in rows:
            assert row["bytes"] <= MAX_ERROR_BYTES
            assert {"class", "message", "attempt", "time"} <= json.loads(row["error"]).keys()

    async def _add_connection(self) -> Connection:
        connection = await self.world.connection(sync={"cursor": "before"})
        await self.world.job(connection)
        return connection

    async def _assert_healthy_ones_succeeded(self) -> None:
        for connection in self.healthy:
            [job] = await self.world.jobs(connection)
            assert job.status == "succeeded"
            assert len(await self.world.signals(connection)) == 1
            assert (await self.world.sync_metadata(connection))["cursor"] == {"page": 2}
        assert await self.world.engine.verify() == []


def batch_world(url: str, connector: Connector, **settings: Any) -> Any:
    """Open a world whose one connector answers as a batch does."""
    executor = in_short(**{"concurrency": 200, **settings})
    return open_world(url, connectors=[connector], executor=executor)
