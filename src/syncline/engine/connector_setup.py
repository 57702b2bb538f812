"""Configure connectors before they run: HTTP, limits of child processes, folders, settings."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from syncline.http.budgets import NO_PERMITS, CallPermits
from syncline.http.environment import HttpEnvironment, HttpLimits, HttpTelemetry
from syncline.http.pool import ConnectionPool
from syncline.sdk.connector import Connector
from syncline.settings import Settings


def configure_connectors(
    connectors: Mapping[str, Connector],
    settings: Settings,
    telemetry: HttpTelemetry,
    pool: ConnectionPool | None = None,
    permits: CallPermits = NO_PERMITS,
) -> None:
    """Set each connector's HTTP environment, limits, folder and settings."""
    http = settings.http
    limits = HttpLimits(
        timeout_seconds=http.timeout_seconds,
        connect_timeout_seconds=http.connect_timeout_seconds,
        max_response_bytes=http.max_response_bytes,
        max_redirects=http.max_redirects,
        max_json_values=http.max_json_values,
        connections_per_origin=http.connections_per_origin,
    )
    cpu_seconds = ceil(settings.executor.max_run_seconds)
    state = _state_folder(settings)
    for provider_slug, connector in connectors.items():
        if isinstance(connector, Connector):
            connector.http_environment = HttpEnvironment(
                limits=limits,
                allow_private=http.allows_private(provider_slug),
                telemetry=telemetry,
                pool=pool,
                closed=permits.closed,
                budgets=permits.budgets,
            )
            connector.child_limits = replace(connector.child_limits, cpu_seconds=cpu_seconds)
            connector.sandboxed = not settings.foreign.is_unsandboxed(provider_slug)
            connector.state_folder = state / provider_slug
            if connector.settings_name is not None:
                connector.configure(getattr(settings, connector.settings_name))


def _state_folder(settings: Settings) -> Path:
    """Return the folder for files of this installation, which its database and schema identify."""
    home = os.environ.get("SYNCLINE_HOME") or os.path.expanduser("~/.cache/syncline")
    database = urlsplit(settings.database_url or "")
    query = [pair for pair in parse_qsl(database.query) if pair[0] not in ("user", "password")]
    place = (database.netloc.rpartition("@")[2], database.path, query, settings.schema)
    return Path(home, "state", hashlib.sha256(repr(place).encode()).hexdigest()[:16])
