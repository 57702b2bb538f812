"""The metrics and log events of the HTTP API: refused requests and failed logins."""

import logging
from enum import StrEnum

from syncline.clock import monotonic
from syncline.policy.rate_limit import Bucket, Rate, take
from syncline.telemetry import metrics
from syncline.telemetry.log import StructuredLog

HTTP = logging.getLogger("syncline.http")
LOGGED_FAILURES = Rate(per_second=1, burst=20)  # a flood of wrong keys must not fill the disk


class Refusal(StrEnum):
    """Why a request or a client was refused."""

    RATE = "rate"
    CONCURRENCY = "concurrency"
    FAILED_LOGINS = "failed_logins"
    CLIENTS = "clients"
    SLOW = "slow"


class ApiTelemetry:
    """Records what the API refused, and logins that failed."""

    def __init__(self, define: metrics.Definitions, log: StructuredLog) -> None:
        self._refused = define.counter(
            "sync_api_refused_total", "Requests and clients refused.", "reason"
        )
        self._failed_logins = define.counter(
            "sync_api_failed_logins_total", "Logins with a wrong key."
        ).alone()
        self._log = log
        self._log_bucket: Bucket | None = None
        self._unlogged = 0

    def request_refused(self, reason: Refusal) -> None:
        self._refused[reason].inc()

    def login_failed(self, address: str) -> None:
        """Count a login with a wrong key; log at most one a second, with the number left out."""
        self._failed_logins.inc()
        self._log_bucket, wait = take(self._log_bucket, LOGGED_FAILURES, monotonic())
        if wait:
            self._unlogged += 1
            return
        fields = {"address": address, "unlogged": self._unlogged}
        self._unlogged = 0
        self._log.event(HTTP, logging.WARNING, "api.login_failed", fields)
