"""The places that must name a trouble, and what each of them says of it."""

import asyncio
import html
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

from faults.process import ROOT

from fleet.fill import DOWN, FLOODING, LIMITED
from fleet.stage import Stage

DEADLINE_SECONDS = 30
TAGS = re.compile(r"<[^>]*>")
SENTENCES = {
    DOWN: "does not answer since {at}; .{0,60}?{count} of {count} wait",
    LIMITED: "limits us since {at}; .{0,60}?{count} of {count} wait",
    FLOODING: "asks for more than its share since {at}; .{0,60}?{count} have jobs due",
}
AT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
COUNT = r"(?:at least )?[\d,]+ (?:other )?(?:connection|tenant)s?"
PATTERNS = {
    name: re.compile(
        rf"\b{name}\b[^;]{{0,400}}?" + sentence.replace("{at}", AT).replace("{count}", COUNT)
    )
    for name, sentence in SENTENCES.items()
}


@dataclass(frozen=True, slots=True)
class Surface:
    """A page, a route or a command; `read` returns the sentences that it shows by trouble."""

    name: str
    read: Callable[[Stage], Awaitable[Mapping[str, str]]]


async def fetch(stage: Stage, path: str, body: object = None) -> str:
    """Ask for a page, or send something; return the answer."""
    sent = None if body is None else json.dumps(body).encode()
    request = Request(stage.address + path, sent, {"Content-Type": "application/json"})

    def get() -> str:
        with urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(get)


def page(path: str) -> Callable[[Stage], Awaitable[Mapping[str, str]]]:
    async def read(stage: Stage) -> Mapping[str, str]:
        return told(html.unescape(TAGS.sub(" ", await fetch(stage, path))))

    return read


async def api(stage: Stage) -> Mapping[str, str]:
    """Return what the fields say, which programs read, put in the words of the sentences."""
    found = json.loads(await fetch(stage, "/v1/providers"))
    lines = [_line(one["provider_slug"], one) for one in found["items"] if one["trouble"]]
    lines += [
        f"{one['tenant_id']} asks for more than its share since {_whole(one['since'])};"
        f" {one['others']} other tenants have jobs due"
        for one in found["floods"]
    ]
    return told("\n".join(lines))


def _line(slug: str, one: Mapping[str, Any]) -> str:
    words = {"down": "does not answer", "rate_limited": "limits us"}.get(one["health"], "fails")
    return (
        f"{slug}: {words} since {_whole(one['troubled_since'])};"
        f" {one['affected_connections']} connections of {one['affected_tenants']} tenants wait"
    )


def _whole(at: str | None) -> str:
    return f"{at[:19]}Z" if at else "?"


async def status(stage: Stage) -> Mapping[str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "syncline", "status"),
        cwd=ROOT,
        env=stage.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    return told(printed.decode())


def told(shown: str) -> dict[str, str]:
    """Return the sentence about each trouble that is named, with since when and how many."""
    words = re.sub(r"\s+", " ", shown)
    found = {name: pattern.search(words) for name, pattern in PATTERNS.items()}
    return {name: match.group() for name, match in found.items() if match}


SURFACES = (
    Surface("overview", page("/")),
    Surface("providers page", page("/providers")),
    Surface("/v1/providers", api),
    Surface("syncline status", status),
)
