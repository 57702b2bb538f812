"""One connection, one job: as a row of a table, or field by field."""

from datetime import datetime
from typing import Any

from syncline.cli.output import print_fields, print_json, record
from syncline.model import Connection, Job
from syncline.text import error_text, reason_text


def connection_row(connection: Connection) -> tuple[Any, ...]:
    sync = _sync(connection)
    return (
        connection.id,
        connection.tenant_id,
        connection.provider_slug,
        connection.external_id,
        connection.status,
        _seconds(sync.get("interval_seconds")),
        _instant(sync.get("next_run_at")),
        reason_text(connection.status_reason),
    )


def show_connection(connection: Connection, as_json: bool) -> None:
    if as_json:
        print_json(record(connection))
        return
    print_fields(
        {
            "ID": connection.id,
            "Tenant": connection.tenant_id,
            "Provider": connection.provider_slug,
            "External id": connection.external_id,
            "Status": connection.status,
            "Reason": connection.status_reason,
            "Config": connection.config,
            **{f"sync.{name}": value for name, value in _sync(connection).items()},
            "Created": connection.created_at,
            "Updated": connection.updated_at,
        }
    )


def _sync(connection: Connection) -> dict[str, Any]:
    """Return `metadata.sync`; users may have overwritten it with anything."""
    metadata = connection.metadata
    sync = metadata.get("sync") if isinstance(metadata, dict) else None
    return sync if isinstance(sync, dict) else {}


def _seconds(interval: Any) -> Any:
    return f"{interval} s" if isinstance(interval, int) else interval


def _instant(text: Any) -> Any:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return text


def show_job(job: Job, as_json: bool) -> None:
    if as_json:
        print_json(record(job))
        return
    print_fields(
        {
            "ID": job.id,
            "Tenant": job.tenant_id,
            "Provider": job.provider_slug,
            "Connection": job.connection_id,
            "Type": job.job_type,
            "Status": job.status,
            "Priority": job.priority,
            "Failures": job.attempts,
            "Slot": job.slot_at,
            "Scheduled": job.scheduled_at,
            "Retry after": job.retry_after,
            "Started": job.started_at,
            "Finished": job.finished_at,
            "Cursor": job.cursor,
            "Error": error_text(job.error) or None,
        }
    )
