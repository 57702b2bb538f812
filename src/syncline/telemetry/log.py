"""How the engine speaks: a log record with its fields, and spans that keep secrets."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace

TRACEBACK = "exception"  # the field that log renderers show below the line
Fields = dict[str, str | int | float]
NOT_IN_A_WORD = frozenset(" ='\"")


class Voice:
    """Logs the events of one cell."""

    def __init__(self, cell: str) -> None:
        self._cell = cell

    def _log(
        self, logger: logging.Logger, level: int, event: str, fields: Mapping[str, object] = {}
    ) -> None:
        """Log an event as text that is enough by itself, and as fields for machines."""
        if logger.isEnabledFor(level):
            told = (
                f"{name}={_plain(value)}" for name, value in fields.items() if name != TRACEBACK
            )
            extra = {"event": event, "cell": self._cell, **fields}
            text = " ".join((event, *told))
            if TRACEBACK in fields:
                text = f"{text}\n{fields[TRACEBACK]}"
            logger.log(level, "%s", text, extra=extra, stacklevel=3)


@contextmanager
def inside(span: trace.Span) -> Iterator[None]:
    """Make the span current; of an exception it learns the class, as messages may hold secrets."""
    with trace.use_span(
        span, end_on_exit=True, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield
        except Exception as error:
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def _plain(value: object) -> str:
    """Return the value as one word, or quoted, so that no value can pass for another line."""
    text = str(value)
    is_word = text.isprintable() and text and not NOT_IN_A_WORD.intersection(text)
    return text if is_word else repr(text)
