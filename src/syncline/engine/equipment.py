"""What connectors are given before they run: how they may call out, and what children may use."""

from collections.abc import Mapping
from math import ceil

from syncline.children.limits import ChildLimits
from syncline.http.environment import HttpEnvironment, HttpLimits, HttpTelemetry
from syncline.sdk.connector import Connector
from syncline.settings import Settings


def equip(
    connectors: Mapping[str, Connector], settings: Settings, telemetry: HttpTelemetry
) -> None:
    """Give each connector its HTTP environment, and the limits of its child processes."""
    http = settings.http
    limits = HttpLimits(
        timeout_seconds=http.timeout_seconds,
        connect_timeout_seconds=http.connect_timeout_seconds,
        max_response_bytes=http.max_response_bytes,
        max_redirects=http.max_redirects,
    )
    child_limits = ChildLimits(cpu_seconds=ceil(settings.executor.max_run_seconds))
    for provider_slug, connector in connectors.items():
        if isinstance(connector, Connector):
            connector.http_environment = HttpEnvironment(
                limits=limits,
                allow_private=http.allows_private(provider_slug),
                telemetry=telemetry,
            )
            connector.child_limits = child_limits
            connector.sandboxed = not settings.foreign.is_unsandboxed(provider_slug)
