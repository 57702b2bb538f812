"""Which connections a listing holds, and in which order."""

from datetime import datetime
from typing import Any, TypedDict

from syncline.model import ConnectionFilter, ConnectionOrder, ConnectionStatus
from syncline.services.validation import check_choice, check_filters

KEY_TYPES: dict[ConnectionOrder, type[Any] | None] = {
    ConnectionOrder.ID: None,
    ConnectionOrder.EXTERNAL_ID: str,
    ConnectionOrder.STALENESS: datetime,
}


class ConnectionFilterFields(TypedDict, total=False):
    """Which connections a listing holds; None, or a key left out, stands for any."""

    tenant_id: str | None
    provider_slug: str | None
    status: str | None
    external_id_prefix: str | None


def check_listing(wanted: ConnectionFilter, order: str | None) -> ConnectionOrder:
    """Check the filters and return the order."""
    if wanted.status is not None:
        check_choice("status", wanted.status, ConnectionStatus)
    check_filters(
        tenant_id=wanted.tenant_id,
        provider_slug=wanted.provider_slug,
        external_id_prefix=wanted.external_id_prefix,
    )
    chosen = ConnectionOrder.ID if order is None else order
    check_choice("order", chosen, ConnectionOrder)
    return ConnectionOrder(chosen)
