"""The metrics and log events of the HTTP API: what was refused, and logins that failed."""

import logging
from enum import StrEnum

from syncline.clock import monotonic
from syncline.policy.rate_limit import Bucket, Rate, take
from syncline.telemetry import metrics
from syncline.telemetry.log import Voice

HTTP = logging.getLogger("syncline.http")
LOGGED_FAILURES = Rate(per_second=1, burst=20)  # a flood of wrong keys must not fill the disk


class Refusal(StrEnum):
    """Why a request or a client was turned away."""

    RATE = "rate"
    CONCURRENCY = "concurrency"
    FAILED_LOGINS = "failed_logins"
    CLIENTS = "clients"
    SLOW = "slow"


class ApiTelemetry(Voice):
    """Counts what the API turned away, and logs logins that failed."""

    def __init__(self, define: metrics.Definitions, cell: str) -> None:
        super().__init__(cell)
        self._refused = define.counter(
            "sync_api_refused_total", "Requests and clients turned away.", "reason"
        )
        self._failed_logins = define.counter(
            "sync_api_failed_logins_total", "Logins with a key that is not good."
        ).alone()
        self._log_bucket: Bucket | None = None
        self._unlogged = 0

    def request_refused(self, reason: Refusal) -> None:
        self._refused[reason].inc()

    def login_failed(self, address: str) -> None:
        """Count a login with a wrong key; log the address, and how many were not logged before."""
        self._failed_logins.inc()
        self._log_bucket, wait = take(self._log_bucket, LOGGED_FAILURES, monotonic())
        if wait:
            self._unlogged += 1
            return
        fields = {"address": address, "unlogged": self._unlogged}
        self._unlogged = 0
        self._log(HTTP, logging.WARNING, "api.login_failed", fields)
