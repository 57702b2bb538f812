"""A connection of the real engine, synced by real workers that may be killed."""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline import Engine, Settings

PATIENCE = LEASE_SECONDS + 40
SECRET_KEYS = "test:" + base64.b64encode(b"k" * 32).decode()


class Scene:
    """One connection, its jobs and signals, and the processes that work on them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._id: Any = None

    async def connect(
        self, provider: str, config: dict[str, Any], credentials: dict[str, Any] | None = None
    ) -> None:
        async with self._engine() as engine:
            connection = await engine.connections.create(
                tenant_id="acme",
                provider_slug=provider,
                external_id="1",
                config=config,
                credentials=credentials,
                interval_seconds=86_400,
            )
            self._id = connection.id

    async def set_credentials(self, credentials: dict[str, Any]) -> None:
        async with self._engine() as engine:
            await engine.connections.set_credentials(self._id, credentials)

    async def sync(self, *, disturb: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run a job to its end; `disturb` is called once the worker has stored something."""
        before = await self._fleet.count("signals")
        async with self._engine() as engine:
            await engine.trigger(self._id)
        worker = self._start_worker()
        if disturb is not None:
            await until(lambda: self._has_grown(before), within=PATIENCE, what="a page is stored")
            await disturb()
        await until(self._is_done, within=PATIENCE, what=f"the job ends\n{self._fleet.logs()}")
        worker.terminate()
        await exit_code(worker, within=20)

    async def sync_killed(self, total: int, *, deaths: int = 2) -> None:
        """Run a job to its end, while its workers are killed in the middle of the work."""
        async with self._engine() as engine:
            await engine.trigger(self._id)
        for _ in range(deaths):
            before = await self._fleet.count("signals")
            worker = self._start_worker()
            await until(lambda least=before: self._has_grown(least), within=PATIENCE)  # type: ignore[misc]
            worker.kill()
            await exit_code(worker, within=5)
            assert not await self._is_done(), "it was killed too late to have been in the middle"
            assert await self._fleet.count("signals") < total
        last = self._start_worker()
        await until(self._is_done, within=PATIENCE, what=f"the job ends\n{self._fleet.logs()}")
        last.terminate()
        await exit_code(last, within=20)
        async with self._engine() as engine:
            assert await engine.verify() == []

    async def signals(self) -> list[tuple[str, Any]]:
        """Return the kind and payload of every stored signal, in their order."""
        rows = await self._fleet.sql("SELECT kind, payload FROM syncline.signals ORDER BY id")
        return [(row["kind"], json.loads(row["payload"])) for row in rows]

    async def status(self) -> str:
        [row] = await self._fleet.sql("SELECT status FROM syncline.connections")
        return str(row["status"])

    async def errors(self) -> list[Any]:
        rows = await self._fleet.sql("SELECT error FROM syncline.sync_jobs ORDER BY created_at")
        return [row["error"] and json.loads(row["error"]) for row in rows]

    def _engine(self) -> Engine:
        return Engine(Settings(database_url=self._fleet.url, secret_keys=SECRET_KEYS))

    def _start_worker(self) -> Any:
        return self._fleet.start_worker(
            http__allow_private="*",
            rate_limit__base_seconds=1,
            rate_limit__max_seconds=5,
            secret_keys=SECRET_KEYS,
        )

    async def _has_grown(self, count: int) -> bool:
        return await self._fleet.count("signals") > count

    async def _is_done(self) -> bool:
        return await self._fleet.count("sync_jobs", "status IN ('queued', 'running')") == 0
