"""A process of many runs that all find the same access token expired.

python -m support.token_refresh_process DATABASE_URL KEYS CONNECTION PAGE RUNS
"""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from syncline import Engine, Settings
from syncline.http import HttpClient, HttpEnvironment
from syncline.store.data import credentials


async def call_many(url: str, keys: str, connection_id: UUID, page: str, runs: int) -> list[str]:
    """Call the page that often at once, each time as a run of its own, and return the answers."""
    async with Engine(Settings(database_url=url, secret_keys=keys)) as engine:
        async with engine._pool.transaction() as tx:
            stored = (await credentials.read(tx, [connection_id]))[connection_id]
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

        def claim() -> Any:
            return SimpleNamespace(credentials=stored, provider_slug="desk")

        async def call() -> str:
            async with HttpClient(
                HttpEnvironment(allow_private=True),
                provider_slug="desk",
                credentials=engine._token_refresher.open_for_run(claim()),
            ) as http:
                return str((await http.get(page)).json()["me"])

        return await asyncio.gather(*(call() for _ in range(runs)))


if __name__ == "__main__":
    url, keys, connection, page, runs = sys.argv[1:]
    answers = asyncio.run(call_many(url, keys, UUID(connection), page, int(runs)))
    print(*answers, flush=True)
