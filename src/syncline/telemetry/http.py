"""The metrics and spans of connectors' HTTP requests."""

from types import TracebackType

from opentelemetry import context, trace

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
        self.requests = define.counter(
            "sync_http_requests_total", "Requests to providers.", slug, "method", "outcome"
        )
        self.seconds = define.histogram(
            "sync_http_request_seconds", "Duration of requests.", REQUEST_SECONDS, slug
        )
        self.bytes = define.counter(
            "sync_http_response_bytes_total", "Bytes of answers, decompressed.", slug
        )
        self.tracer = tracer
        self.cell = cell

    def request(self, provider_slug: str, method: str, host: str) -> "RequestSpan":
        """Count and time one request, inside a span of its own."""
        return RequestSpan(self, provider_slug, method if method in METHODS else "other", host)


class RequestSpan:
    """One request from start to end. A class, because it costs a third of a generator."""

    __slots__ = ("_attached", "_began", "_call", "_names", "_span", "_telemetry")

    def __init__(
        self, telemetry: ConnectorHttpTelemetry, provider_slug: str, method: str, host: str
    ) -> None:
        self._telemetry = telemetry
        self._names = provider_slug, method, host

    def __enter__(self) -> Call:
        self._call = Call()
        self._span = self._telemetry.tracer.start_span("http.request")
        self._attached = None
        if self._span.is_recording():
            self._attached = context.attach(trace.set_span_in_context(self._span))
        self._began = monotonic()
        return self._call

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        telemetry, call = self._telemetry, self._call
        provider_slug, method, host = self._names
        failure = kind.__name__ if kind is not None else None
        telemetry.requests[provider_slug, method, outcome(call.status, failure)].inc()
        telemetry.seconds[provider_slug].observe(monotonic() - self._began)
        telemetry.bytes[provider_slug].inc(call.received_bytes)
        if self._attached is not None:
            span = self._span
            span.set_attributes({"cell": telemetry.cell, "provider_slug": provider_slug})
            span.set_attributes({"http.request.method": method, "server.address": host})
            _describe_end(span, call, failure)
            context.detach(self._attached)
        self._span.end()


def outcome(status: int | None, failure: str | None) -> str:
    """Return the `outcome` label: a status, a class of statuses, or the kind of failure."""
    if failure is not None:
        known = {"CancelledError": "cancelled", "Permanent": "refused"}
        return "timeout" if failure in SLOW else known.get(failure, "error")
    if status in (304, 401, 403, 404, 429):
        return str(status)
    return f"{status // 100}xx" if status is not None and 200 <= status < 600 else "error"


def _describe_end(span: trace.Span, call: Call, failure: str | None) -> None:
    if call.status is not None:
        span.set_attribute("http.response.status_code", call.status)
    if failure is not None:
        span.set_status(trace.StatusCode.ERROR, failure)
    elif call.status is not None and call.status >= 400:
        span.set_status(trace.StatusCode.ERROR, str(call.status))
