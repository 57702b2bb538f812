"""Exports spans by OTLP, if the `otel` extra is installed and an endpoint is set."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from syncline.redaction import mask_secrets

LOG = logging.getLogger("syncline.tracing")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def exported_spans() -> Iterator[None]:
    """Export spans inside the block, as the standard OTEL_… variables say; otherwise do nothing."""
    endpoint = next(filter(None, map(os.environ.get, ENDPOINTS)), None)
    if endpoint is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        LOG.warning("spans are not exported: run `pip install 'syncline[otel]'`")
        yield
        return
    service = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "syncline"}
    resource = Resource.create({**service, "service.version": version("syncline")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    LOG.info("exporting spans to %s", mask_secrets(endpoint))
    try:
        yield
    finally:
        provider.shutdown()  # sends the rest, within the exporter's timeout
