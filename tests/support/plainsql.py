"""Plain SQL beside the engine: edits by hand, sessions for races, locks that hold others up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg

BLOCKED = """
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'syncline%'
       AND wait_event_type = 'Lock'
"""


class PlainSql:
    """Sessions of a person's own on one database; `{schema}` stands for the schema's name."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self._session: Any = None
        self._turn = asyncio.Lock()  # a session does one thing at a time

    async def sql(self, statement: str, *arguments: Any, session: Any = None) -> Any:
        """Run a statement in the session given, or in one kept for it; return its rows."""
        if session is not None:
            return await session.fetch(self.qualified(statement), *arguments)
        async with self._turn:
            if self._session is None:
                self._session = await asyncpg.connect(self.url)
            return await self._session.fetch(self.qualified(statement), *arguments)

    async def server_time(self) -> datetime:
        [row] = await self.sql("SELECT clock_timestamp() AS now")
        now: datetime = row["now"]
        return now

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def qualified(self, statement: str) -> str:
        return statement.replace("{schema}", f'"{self.schema}"')

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """Yield a separate session, for races that a test writes out."""
        session = await asyncpg.connect(self.url)
        try:
            yield session
        finally:
            await session.close()

    @asynccontextmanager
    async def locked_table(self, table: str) -> AsyncIterator[Any]:
        """Keep everybody else from writing to a table; the session lent may."""
        async with self.session() as session, session.transaction():
            await session.execute(
                self.qualified(f"LOCK TABLE {{schema}}.{table} IN SHARE ROW EXCLUSIVE MODE")
            )
            yield session

    async def blocked_session(self) -> int:
        """Wait until a session of an engine waits for a lock; return its process id."""
        while not (rows := await self.sql(BLOCKED)):  # noqa: ASYNC110  (nobody tells of a lock)
            await asyncio.sleep(0.005)
        pid: int = rows[0]["pid"]
        return pid

    async def terminate(self, pid: int) -> None:
        await self.sql("SELECT pg_terminate_backend($1::int, 5000)", pid)
