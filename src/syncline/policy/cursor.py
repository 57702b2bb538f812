"""Which cursor a run starts from. None means absent: SQL NULL or JSON null."""

from typing import Any

from syncline.model import JobType


def effective_cursor(job_type: str, job_cursor: Any, stored_cursor: Any) -> Any:
    """Return the job's own cursor, else the connection's; a full run starts from nothing."""
    if job_cursor is not None or job_type == JobType.FULL:
        return job_cursor
    return stored_cursor
