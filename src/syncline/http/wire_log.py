"""Keeps our calls out of the wire's own debug log, which shows headers as they come and go.

Whatever else in the process uses the same library is logged as before.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

LOGGERS = ("httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
_ours: ContextVar[bool] = ContextVar("syncline_http_call", default=False)


@contextmanager
def unlogged() -> Iterator[None]:
    """Let what happens inside leave no trace in those logs."""
    _attach()
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


@cache
def _attach() -> None:
    for name in LOGGERS:
        logging.getLogger(name).addFilter(lambda _record: not _ours.get())
