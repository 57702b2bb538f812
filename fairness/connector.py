"""The connectors of the counting provider, and one that only takes time."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from faults.process import end_with_the_suite

from syncline import Connection, Connector, RateLimited, Signal, SyncError, SyncResult
from syncline.http import Response

URLS_VARIABLE = "FAIRNESS_PROVIDERS"  # the address of each application, as JSON
NAP_VARIABLE = "FAIRNESS_NAP_SECONDS"
SCOPE_HEADER = "x-limit-scope"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
URLS: dict[str, str] = json.loads(os.environ.get(URLS_VARIABLE, "{}"))
NAP_SECONDS = float(os.environ.get(NAP_VARIABLE, "0.05"))


class Application(Connector):
    """One call a run, which brings nothing."""

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=URLS[self.provider], errors=limits) as http:
            await http.get(connection.external_id, params={"after": cursor or 0})
        return SyncResult()


One, Two, Three, Four, Five = (
    type(f"Application{number}", (Application,), {"provider": f"app-{number}"})
    for number in range(1, 6)
)


class Archive(Connector):
    """Many pages a run, one call and one record each."""

    provider = "archive"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        after, more = cursor or 0, True
        async with self.http(connection, base_url=URLS[self.provider], errors=limits) as http:
            while more:
                answer = await http.get(connection.external_id, params={"after": after})
                after, more = after + 1, answer.json()["more"]
                yield SyncResult([Signal("record", EPOCH, {"number": after})], next_cursor=after)


class Nap(Connector):
    """No call at all; it waits as if for an answer."""

    provider = "nap"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        await asyncio.sleep(NAP_SECONDS)
        return SyncResult()


def limits(answer: Response) -> SyncError | None:
    """Return the limit of the whole application, if it is one."""
    if answer.status_code == 429 and answer.headers.get(SCOPE_HEADER) == "app":
        wait = answer.headers["retry-after"]
        return RateLimited("the application is limited", retry_after_seconds=wait, scope="app")
    return None


if URLS_VARIABLE in os.environ:
    end_with_the_suite()
