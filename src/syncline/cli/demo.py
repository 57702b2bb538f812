"""`up --demo`: connections that really sync, without an account anywhere."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.connectors.demo import DEMO_CONNECTIONS
from syncline.engine.app import Engine

GIT_TENANT = "acme"
INTERVAL_SECONDS = 60


async def add_demo_connections(engine: Engine, folder: Path) -> list[str]:
    """Add what is not there yet, and return what a person should know about it."""
    wanted: list[Mapping[str, Any]] = list(DEMO_CONNECTIONS)
    repository, told = find_repository(folder)
    if repository is not None:
        wanted.append(
            {
                "tenant_id": GIT_TENANT,
                "provider_slug": "git",
                "external_id": str(repository),
                "config": {"url": str(repository)},
                "interval_seconds": INTERVAL_SECONDS,
            }
        )
    added = 0
    for connection in wanted:
        if not await _exists(engine, connection):
            await engine.connections.create(**connection)
            added += 1
    known = len(wanted) - added
    return [told, f"Added {added} demo connections" + (f"; {known} were there already." if known else ".")]


def find_repository(folder: Path) -> tuple[Path | None, str]:
    """Return the git repository that a folder is in, if it can be synced, and a sentence on it."""
    if shutil.which("git") is None:
        return None, "The git program was not found, so the demo goes without a repository."
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate, f"Syncing the commits of {candidate}."
    return None, f"{folder} is in no git repository, so the demo goes without one."


async def _exists(engine: Engine, wanted: Mapping[str, Any]) -> bool:
    key = {name: wanted[name] for name in ("tenant_id", "provider_slug")}
    found = await engine.connections.list(**key, limit=1000)
    return any(connection.external_id == wanted["external_id"] for connection in found)
