"""Log output of the command line: text for people, or one JSON object per line.

The engine logs through standard `logging` and installs no handler. Only a program that owns its
process decides where logs go, and the command line is one.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from syncline.redaction import mask_secrets
from syncline.text import printable

MULTI_LINE = {"exception", "stack"}


@contextmanager
def rendered_logs(
    *, level: str = "info", json: bool = False, stream: TextIO | None = None
) -> Iterator[None]:
    """Show Syncline's logs from `level` up, and warnings of other libraries, inside the block."""
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(_formatter(json=json, colours=_has_colours(handler.stream)))
    root, own = logging.getLogger(), logging.getLogger("syncline")
    before = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        own.setLevel(before[1])


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        """Ignore a record that cannot be written: a closed pipe must not stop a worker.

        The standard handler would print the record and its traceback unmasked.
        """


def _formatter(*, json: bool, colours: bool) -> structlog.stdlib.ProcessorFormatter:
    renderers: list[Processor] = [structlog.processors.JSONRenderer(default=str)]
    if not json:
        # A rich traceback would show local variables, which may hold credentials.
        plain = structlog.dev.plain_traceback
        renderers = [
            _drop_own_logger,
            structlog.dev.ConsoleRenderer(
                colors=colours, pad_event_to=0, sort_keys=False, exception_formatter=plain
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            # The engine's records carry their event's name as a field: it replaces their text,
            # which repeats the other fields for handlers that show nothing else.
            structlog.stdlib.ExtraAdder(),
            _drop_formatted,
            structlog.processors.TimeStamper(fmt="iso" if json else "%Y-%m-%d %H:%M:%SZ"),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _add_span,
            _clean,
            *renderers,
        ],
    )


def _drop_formatted(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop what the formatter of another handler may have left on the record."""
    event.pop("message", None)
    event.pop("asctime", None)
    return event


def _add_span(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the current span, if spans are exported."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = trace.format_trace_id(span.trace_id)
        event["span_id"] = trace.format_span_id(span.span_id)
    return event


def _clean(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask secrets, and escape characters that could forge a line or control the terminal."""
    for name, value in event.items():
        if isinstance(value, str):
            text = mask_secrets(value)
            lines = text.split("\n") if name in MULTI_LINE else [text]
            event[name] = "\n".join(map(printable, lines))
    return event


def _drop_own_logger(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop the logger of our own events, since the event's name says the same."""
    if event["logger"].startswith("syncline."):
        del event["logger"]
    return event


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")
