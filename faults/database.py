"""Direct access to the database, around every fault: triggers, queries and counts."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg

INSTRUMENTS = """
    CREATE TABLE public.regressions (connection_id uuid, before jsonb, after jsonb);
    CREATE FUNCTION public.note_regression() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.regressions
        VALUES (NEW.id, OLD.metadata #> '{sync,cursor}', NEW.metadata #> '{sync,cursor}');
        RETURN NEW;
    END $$;
    CREATE TRIGGER note_regression AFTER UPDATE ON syncline.connections FOR EACH ROW
       WHEN (coalesce((OLD.metadata #>> '{sync,cursor}')::bigint, 0)
             > coalesce((NEW.metadata #>> '{sync,cursor}')::bigint, 0))
    EXECUTE FUNCTION public.note_regression();

    CREATE TABLE public.refusals (job_id uuid, error jsonb);
    CREATE FUNCTION public.note_refusal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.refusals VALUES (NEW.id, NEW.error);
        RETURN NEW;
    END $$;
    CREATE TRIGGER note_refusal AFTER UPDATE ON syncline.sync_jobs FOR EACH ROW
       WHEN (NEW.error::text LIKE '%could not be stored%')
    EXECUTE FUNCTION public.note_refusal();
"""

CURSORS = """
    SELECT external_id, coalesce((metadata #>> '{sync,cursor}')::bigint, 0) AS cursor
      FROM syncline.connections
"""

# Records are numbered from 0, so in every snapshot the cursor equals the number of signals.
TORN = """
    SELECT c.external_id, coalesce((c.metadata #>> '{sync,cursor}')::bigint, 0) AS cursor,
           count(s.id) AS signals, count(DISTINCT s.payload ->> 'number') AS distinct
      FROM syncline.connections c LEFT JOIN syncline.signals s ON s.connection_id = c.id
     GROUP BY c.id
    HAVING count(s.id) <> coalesce((c.metadata #>> '{sync,cursor}')::bigint, 0)
        OR count(DISTINCT s.payload ->> 'number') <> count(s.id)
"""

TALLY = """
    SELECT c.external_id, count(s.id) AS stored, count(DISTINCT s.payload ->> 'number') AS distinct
      FROM syncline.connections c LEFT JOIN syncline.signals s ON s.connection_id = c.id
     GROUP BY c.id
"""

CLAIMED_SINCE = """
    SELECT c.external_id, min(j.started_at) AS started_at
      FROM syncline.connections c JOIN syncline.sync_jobs j ON j.connection_id = c.id
     WHERE c.external_id = ANY ($1::text[]) AND j.started_at > $2
       AND j.started_at <= clock_timestamp()  -- otherwise the clock was ahead then
     GROUP BY c.external_id
"""

ATTEMPTS = """
    SELECT c.external_id, sum(j.attempts) AS attempts
      FROM syncline.connections c JOIN syncline.sync_jobs j ON j.connection_id = c.id
     GROUP BY c.external_id
"""

REMOVE_PADDING = """
    UPDATE syncline.signals SET payload = payload - 'padding'
     WHERE provider_slug = 'large-records' AND payload ? 'padding'
"""

RUNNING = """
    SELECT id, lease_token, lease_expires_at FROM syncline.sync_jobs WHERE status = 'running'
"""


class Database:
    """One session, reopened whenever Postgres has closed it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: Any = None

    async def fetch(self, statement: str, *arguments: Any) -> Any:
        for last in (False, True):
            try:
                if self._session is None or self._session.is_closed():
                    self._session = await asyncpg.connect(self.url, timeout=5)
                return await self._session.fetch(statement, *arguments, timeout=20)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                self.close()
                if last:
                    raise
        raise AssertionError("unreachable")

    async def value(self, statement: str, *arguments: Any) -> Any:
        return (await self.fetch(statement, *arguments))[0][0]

    async def install_instruments(self) -> None:
        await self.execute(INSTRUMENTS)

    async def execute(self, script: str) -> None:
        """Run several statements."""
        await self.value("SELECT 1")
        await self._session.execute(script)

    async def now(self) -> datetime:
        now: datetime = await self.value("SELECT clock_timestamp()")
        return now

    async def cursors(self) -> dict[str, int]:
        return {row["external_id"]: row["cursor"] for row in await self.fetch(CURSORS)}

    async def claimed_since(self, names: Sequence[str], since: datetime) -> dict[str, datetime]:
        rows = await self.fetch(CLAIMED_SINCE, names, since)
        return {row["external_id"]: row["started_at"] for row in rows}

    async def running(self) -> set[tuple[Any, ...]]:
        return {tuple(row) for row in await self.fetch(RUNNING)}

    async def attempts(self) -> Counter[str]:
        """Return how many attempts were counted for each stream so far."""
        return Counter({row["external_id"]: row["attempts"] for row in await self.fetch(ATTEMPTS)})

    async def remove_padding(self) -> None:
        """Keep only the numbers of large records, because they are read again and again."""
        await self.fetch(REMOVE_PADDING)

    async def torn(self) -> list[str]:
        return [str(dict(row)) for row in await self.fetch(TORN)]

    async def terminate_all_others(self) -> int:
        rows = await self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND application_name LIKE 'syncline%'"
        )
        return len(rows)

    def close(self) -> None:
        if self._session is not None:
            with suppress(Exception):
                self._session.terminate()
            self._session = None
