"""A plain session beside the simulation, in a thread of its own, where time is real."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg

# Which of these sessions wait for a lock, and for whom.
WAITING = """
    SELECT pid, pg_blocking_pids(pid) AS blockers FROM unnest($1::int[]) AS pid
     WHERE cardinality(pg_blocking_pids(pid)) > 0
"""
CANCEL = "SELECT pg_cancel_backend($1)"
END_SESSION = "SELECT pg_terminate_backend($1)"
SESSION = "SELECT pid FROM pg_stat_activity WHERE pid = $1"


class Observer:
    """Asks the server, while the simulated world stands still."""

    def __init__(self, url: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self._session: Any = self._run(asyncpg.connect, url)

    def ask(self, query: str, *arguments: Any) -> list[Any]:
        return list(self._run(self._session.fetch, query, *arguments))

    def end_session(self, pid: int) -> None:
        """Return once the server has rolled back what the session had open."""
        self.ask(END_SESSION, pid)
        while self.ask(SESSION, pid):
            pass

    def cancel(self, pid: int) -> None:
        """Return once a session has given up to wait for a lock."""
        self.ask(CANCEL, pid)
        self.wait_until_free(pid)

    def wait_until_free(self, pid: int) -> None:
        """Return once a session waits for no lock; the world must stand still meanwhile."""
        while self.blockers([pid]):
            pass

    def blockers(self, pids: Sequence[int]) -> dict[int, list[int]]:
        """Return, of these sessions, those that wait for a lock, with those they wait for."""
        return {row["pid"]: row["blockers"] for row in self.ask(WAITING, pids)}

    def close(self) -> None:
        self._run(self._session.close)
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, function: Any, *arguments: Any) -> Any:
        async def work() -> Any:
            return await function(*arguments)

        return self._thread.submit(lambda: self._runner.run(work())).result()
