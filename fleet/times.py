"""How long every page and every route that reads takes, as the server answers them."""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from fleet.fill import DOWN, FLOODING
from fleet.stage import Stage
from fleet.surfaces import fetch
from syncline import Engine, Settings
from syncline.api.app import OPEN_PATHS, create_app

MOST_SECONDS = 1.0
ROUNDS = 12
PAUSE_SECONDS = 1.6  # between rounds: what pages share for a moment is read again
STREAMS = {"/v1/signals/stream", "/v1/signals/tail", "/v1/signals/follow"}
NO_LISTS = {"/healthz", "/readyz"}
NAME = re.compile(r"{(\w+)(?::\w+)?}")
FILTERS: Mapping[str, list[dict[str, str]]] = {
    "connections": [
        {"tenant": FLOODING},
        {"provider": DOWN},
        {"status": "error"},
        {"status": "active"},
        {"order": "staleness"},
        {"tenant": FLOODING, "order": "staleness"},
    ],
    "jobs": [
        {"tenant": FLOODING},
        {"provider": DOWN},
        {"status": "failed"},
        {"status": "queued"},
        {"status": "running"},
        {"tenant": FLOODING, "provider": DOWN, "status": "failed"},
    ],
    "signals": [{"tenant": FLOODING}, {"provider": DOWN}, {"kind": "record"}],
    "tenants": [{"tenant": FLOODING}],
    "providers": [{"provider": DOWN}],
    "search": [{"q": "account-1777"}, {"q": FLOODING}, {"q": "nothing like it"}],
    "audit": [{"tenant": FLOODING}],
    "": [{"period": period} for period in ("24h", "7d", "90d")],
    "stats/history": [{"period": period} for period in ("24h", "7d", "90d")],
}


@dataclass(frozen=True, slots=True)
class Timing:
    path: str
    seconds: list[float]

    @property
    def p50(self) -> float:
        return median(self.seconds)

    @property
    def most(self) -> float:
        return max(self.seconds)

    @property
    def is_kept(self) -> bool:
        return self.most <= MOST_SECONDS


async def measure(stage: Stage) -> tuple[list[Timing], list[str]]:
    """Ask for everything in turn, several times; return the times, and what failed."""
    wanted, failed = await paths(stage)
    taken: dict[str, list[float]] = {path: [] for path in wanted}
    for _ in range(ROUNDS):
        for path in wanted:
            began = time.monotonic()
            try:
                await fetch(stage, path)
            except HTTPError as error:
                failed.append(f"{path}: {error}")
            taken[path].append(time.monotonic() - began)
        await asyncio.sleep(PAUSE_SECONDS)
    return [Timing(path, seconds) for path, seconds in taken.items()], sorted(set(failed))


async def paths(stage: Stage) -> tuple[list[str], list[str]]:
    """Return every page and route that reads, with filters, and those that cannot be asked."""
    found: list[str] = []
    unknown: list[str] = []
    values = await _values(stage)
    async with Engine(Settings(database_url=stage.url)) as engine:
        templates = sorted(set(_templates(engine)))
    for route in templates:
        if any(name not in values for name in NAME.findall(route)):
            unknown.append(f"{route}: fleet/times.py knows no value for its names")
            continue
        path = NAME.sub(lambda match: values[match.group(1)], route)
        found.append(path)
        filters = FILTERS.get(path.removeprefix("/v1").removeprefix("/"), ())
        found += [f"{path}?{urlencode(query)}" for query in filters]
    return found, unknown


def _templates(engine: Engine) -> Iterator[str]:
    for route in _walk(create_app(engine).routes):
        is_read = "GET" in (route.methods or ())
        if is_read and route.path not in OPEN_PATHS | STREAMS | NO_LISTS:
            yield route.path


def _walk(found: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    for route in found:
        if isinstance(route, APIRoute):
            yield route
        elif not isinstance(route, Route) and hasattr(route, "original_router"):
            yield from _walk(route.original_router.routes)


async def _values(stage: Stage) -> dict[str, str]:
    """Return what stands for the names in paths: something of the troubled ones."""

    async def first(path: str) -> dict[str, Any]:
        item: dict[str, Any] = json.loads(await fetch(stage, path))["items"][0]
        return item

    job = await first(f"/v1/jobs?provider={DOWN}&status=queued&limit=1")
    signal = await first("/v1/signals?limit=1")
    nobody = {"action": "pause", "filter": {"tenant": "nobody"}, "expected": 0}
    action = json.loads(await fetch(stage, "/v1/connections/actions", nobody))
    return {
        "connection_id": job["connection_id"],
        "job_id": job["id"],
        "signal_id": signal["id"],
        "action_id": action["id"],
        "provider_slug": DOWN,
        "slug": DOWN,
        "tenant_id": FLOODING,
        "tenant": FLOODING,
    }
