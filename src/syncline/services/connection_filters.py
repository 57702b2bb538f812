"""Which connections a listing holds, and in which order."""

from collections.abc import Sequence
from dataclasses import replace
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


def check_listing(
    wanted: ConnectionFilter, statuses: Sequence[str], order: str | None
) -> tuple[list[ConnectionFilter], ConnectionOrder]:
    """Check the filters; return one for each status, and the order."""
    each = [replace(wanted, status=one) for one in dict.fromkeys(statuses)] or [wanted]
    for one in each:
        if one.status is not None:
            check_choice("status", one.status, ConnectionStatus)
    check_filters(
        tenant_id=wanted.tenant_id,
        provider_slug=wanted.provider_slug,
        external_id_prefix=wanted.external_id_prefix,
    )
    chosen = ConnectionOrder.ID if order is None else order
    check_choice("order", chosen, ConnectionOrder)
    return each, ConnectionOrder(chosen)
