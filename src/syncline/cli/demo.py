"""`up --demo`: connections that really sync, without any account."""

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
    """Add the demo connections that do not exist yet, and return sentences to show."""
    repository, sentence = find_repository(folder)
    wanted = [*DEMO_CONNECTIONS, *([_git_connection(repository)] if repository else [])]
    added = [connection for connection in wanted if await _add(engine, connection)]
    existing = len(wanted) - len(added)
    kept = f"; {existing} existed already" if existing else ""
    return [sentence, f"Added {len(added)} demo connections{kept}."]


def allow_repository(settings: Settings, folder: Path) -> Settings:
    """Return the settings with the folder's repository added to `git.local_roots`."""
    repository, _ = find_repository(folder)
    if repository is None:
        return settings
    roots = [*settings.git.local_roots, *roots_of(repository)]
    return settings.model_copy(
        update={"git": settings.git.model_copy(update={"local_roots": roots})}
    )


def find_repository(folder: Path) -> tuple[Path | None, str]:
    """Return the git repository around the folder, or None, and a sentence about it."""
    if shutil.which("git") is None:
        return None, "git is not installed, so the demo syncs no repository."
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate, f"The demo also syncs the commits of {candidate}."
    return None, f"{folder} is not in a git repository, so the demo syncs none."


def _git_connection(repository: Path) -> dict[str, Any]:
    return {
        "tenant_id": GIT_TENANT,
        "provider_slug": "git",
        "external_id": str(repository),
        "config": {"url": str(repository)},
        "interval_seconds": INTERVAL_SECONDS,
    }


async def _add(engine: Engine, connection: dict[str, Any]) -> bool:
    """Add the connection and return whether it is new."""
    try:
        await engine.connections.create(**connection)
    except Conflict:  # an earlier run added it
        return False
    return True
