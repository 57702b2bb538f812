"""What connectors are given before they run: how they may call out, and who hears of it."""

from collections.abc import Mapping

from syncline.http.environment import HttpEnvironment, HttpLimits, HttpTelemetry
from syncline.sdk.connector import Connector
from syncline.settings_http import HttpSettings


def equip(
    connectors: Mapping[str, Connector], settings: HttpSettings, telemetry: HttpTelemetry
) -> None:
    """Give each connector its HTTP environment."""
    limits = HttpLimits(
        timeout_seconds=settings.timeout_seconds,
        connect_timeout_seconds=settings.connect_timeout_seconds,
        max_response_bytes=settings.max_response_bytes,
        max_redirects=settings.max_redirects,
    )
    for provider_slug, connector in connectors.items():
        if isinstance(connector, Connector):
            connector.http_environment = HttpEnvironment(
                limits=limits,
                allow_private=settings.allows_private(provider_slug),
                telemetry=telemetry,
            )
