"""`up --demo`: connections that really sync, without an account anywhere."""

import shutil
from pathlib import Path
from typing import Any

from syncline.app import Engine
from syncline.connectors.demo import DEMO_CONNECTIONS
from syncline.connectors.git.local import roots_of
from syncline.errors import Conflict
from syncline.settings import Settings

GIT_TENANT = "acme"
INTERVAL_SECONDS = 60


async def add_demo_connections(engine: Engine, folder: Path) -> list[str]:
    """Add what is not there yet, and return what a person should know about it."""
    repository, told = find_repository(folder)
    wanted = [*DEMO_CONNECTIONS, *([_git_connection(repository)] if repository else [])]
    added = [connection for connection in wanted if await _add(engine, connection)]
    there = len(wanted) - len(added)
    counted = f"{len(added)} demo connections added"
    return [told, f"{counted}, {there} are there from before." if there else f"{counted}."]


def allow_repository(settings: Settings, folder: Path) -> Settings:
    """Return the settings with the repository that a folder is in among those that may be read."""
    repository, _ = find_repository(folder)
    if repository is None:
        return settings
    roots = [*settings.git.local_roots, *roots_of(repository)]
    return settings.model_copy(
        update={"git": settings.git.model_copy(update={"local_roots": roots})}
    )


def find_repository(folder: Path) -> tuple[Path | None, str]:
    """Return the git repository that a folder is in, if it can be synced, and a sentence on it."""
    if shutil.which("git") is None:
        return None, "The git program was not found: the demo goes without a repository."
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate, f"The commits of {candidate} are among what is synced."
    return None, f"{folder} is in no git repository: the demo goes without one."


def _git_connection(repository: Path) -> dict[str, Any]:
    return {
        "tenant_id": GIT_TENANT,
        "provider_slug": "git",
        "external_id": str(repository),
        "config": {"url": str(repository)},
        "interval_seconds": INTERVAL_SECONDS,
    }


async def _add(engine: Engine, connection: dict[str, Any]) -> bool:
    """Return whether the connection is new."""
    try:
        await engine.connections.create(**connection)
    except Conflict:  # an earlier run added it
        return False
    return True
