"""The metrics and log events of budgets."""

import logging
from collections.abc import Mapping

from syncline.telemetry import metrics
from syncline.telemetry.log import Fields, StructuredLog

EXECUTOR = logging.getLogger("syncline.executor")
MAX_SCOPES = 500


class BudgetTelemetry:
    """Records what becomes of budgets. A label is a scope as it was set, never a tenant's own."""

    def __init__(self, define: metrics.Definitions, log: StructuredLog) -> None:
        self._log = log
        self._scopes = metrics.BoundedNames(MAX_SCOPES)
        self._calls = define.counter(
            "sync_budget_calls_total", "Calls that counted in a budget.", "scope"
        )
        self._deferred = define.counter(
            "sync_budget_deferred_total", "Calls that ended their run for want of room.", "scope"
        )
        self._room = define.gauge(
            "sync_budget_room", "Calls that a shared budget has room for.", "scope"
        )

    def calls_made(self, by_scope: Mapping[str, int]) -> None:
        for scope, count in by_scope.items():
            self._calls[self._scopes.shown(scope)].inc(count)

    def calls_deferred(self, by_scope: Mapping[str, int]) -> None:
        for scope, count in by_scope.items():
            self._deferred[self._scopes.shown(scope)].inc(count)

    def seen(self, room_by_scope: Mapping[str, float]) -> None:
        """Show how much room each shared budget has; one that is gone has none."""
        shown = {self._scopes.shown(scope): room for scope, room in room_by_scope.items()}
        for label in [*self._room, *shown]:
            self._room[label].set(round(shown.get(str(label), 0), 1))

    def changed(self, scope: str, why: str) -> None:
        fields: Fields = {"scope": scope, "why": why}
        self._log.event(EXECUTOR, logging.WARNING, "executor.budget_changed", fields)
