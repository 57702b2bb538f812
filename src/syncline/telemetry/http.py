"""The metrics and spans of connectors' HTTP requests."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

from syncline.clock import monotonic
from syncline.http.environment import Call
from syncline.telemetry import metrics

REQUEST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT", "PROPFIND"}
SLOW = {"TimeoutError", "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}


class ConnectorHttpTelemetry:
    """Records every request of a connector; addresses are never labels."""

    def __init__(self, define: metrics.Definitions, tracer: trace.Tracer, cell: str) -> None:
        slug = metrics.SLUG
        self._requests = define.counter(
            "sync_http_requests_total", "Requests to providers.", slug, "method", "outcome"
        )
        self._seconds = define.histogram(
            "sync_http_request_seconds", "Duration of requests.", REQUEST_SECONDS, slug
        )
        self._bytes = define.counter(
            "sync_http_response_bytes_total", "Bytes of answers, decompressed.", slug
        )
        self._tracer = tracer
        self._cell = cell

    @contextmanager
    def request(self, provider_slug: str, method: str, host: str) -> Iterator[Call]:
        """Count and time one request, inside a span of its own."""
        method = method if method in METHODS else "other"
        call, began, failure = Call(), monotonic(), None
        with self._tracer.start_as_current_span(
            "http.request", record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield call
            except BaseException as error:
                failure = type(error).__name__
                raise
            finally:
                self._requests[provider_slug, method, outcome(call.status, failure)].inc()
                self._seconds[provider_slug].observe(monotonic() - began)
                self._bytes[provider_slug].inc(call.received_bytes)
                if span.is_recording():
                    self._describe(span, provider_slug, method, host)
                    _end(span, call, failure)

    def _describe(self, span: trace.Span, provider_slug: str, method: str, host: str) -> None:
        span.set_attributes({"cell": self._cell, "provider_slug": provider_slug})
        span.set_attributes({"http.request.method": method, "server.address": host})


def outcome(status: int | None, failure: str | None) -> str:
    """Return the `outcome` label: a status, a class of statuses, or the kind of failure."""
    if failure is not None:
        known = {"CancelledError": "cancelled", "Permanent": "refused"}
        return "timeout" if failure in SLOW else known.get(failure, "error")
    if status in (304, 401, 403, 404, 429):
        return str(status)
    return f"{status // 100}xx" if status is not None and 200 <= status < 600 else "error"


def _end(span: trace.Span, call: Call, failure: str | None) -> None:
    if call.status is not None:
        span.set_attribute("http.response.status_code", call.status)
    if failure is not None:
        span.set_status(trace.StatusCode.ERROR, failure)
    elif call.status is not None and call.status >= 400:
        span.set_status(trace.StatusCode.ERROR, str(call.status))
