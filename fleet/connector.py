"""The connectors of the fleet: one call a run, and now and then a signal."""

from typing import Any

from fairness import connector as counting

from fleet.fill import PROVIDERS
from syncline import Connection, Connector, Signal, SyncResult

RUNS_PER_SIGNAL = 3


class Account(Connector):
    """One call a run; every third run brings a signal."""

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        url = counting.URLS[self.provider]
        async with self.http(connection, base_url=url, errors=counting.limits) as http:
            await http.get("accounts")
        runs = int((cursor or {}).get("runs", 0)) + 1
        if runs % RUNS_PER_SIGNAL:
            return SyncResult(next_cursor={"runs": runs})
        record = Signal("record", counting.EPOCH, {"number": runs})
        return SyncResult([record], next_cursor={"runs": runs})


CONNECTORS = [type(slug.title(), (Account,), {"provider": slug}) for slug in PROVIDERS]
globals().update({one.__name__: one for one in CONNECTORS})
