"""The structured log, and spans that keep secrets out."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace

TRACEBACK = "exception"  # the field that log renderers show below the line
Fields = dict[str, str | int | float]
NOT_IN_A_WORD = frozenset(" ='\"")


class StructuredLog:
    """Writes the log events of one cell."""

    def __init__(self, cell: str) -> None:
        self.cell = cell

    def event(
        self, logger: logging.Logger, level: int, event: str, fields: Mapping[str, object] = {}
    ) -> None:
        """Log an event twice in one record: as a line of text, and as fields for machines."""
        if logger.isEnabledFor(level):
            pairs = (
                f"{name}={_plain(value)}" for name, value in fields.items() if name != TRACEBACK
            )
            extra = {"event": event, "cell": self.cell, **fields}
            text = " ".join((event, *pairs))
            if TRACEBACK in fields:
                text = f"{text}\n{fields[TRACEBACK]}"
            logger.log(level, "%s", text, extra=extra, stacklevel=3)


@contextmanager
def current_span(span: trace.Span) -> Iterator[None]:
    """Make the span current, and end it with the block.

    The span records only the class of an exception: its message may hold secrets.
    """
    with trace.use_span(
        span, end_on_exit=True, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield
        except Exception as error:
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def _plain(value: object) -> str:
    """Return the value as one word, or quoted, so that no value can imitate another log line."""
    text = str(value)
    is_word = text.isprintable() and text and not NOT_IN_A_WORD.intersection(text)
    return text if is_word else repr(text)
