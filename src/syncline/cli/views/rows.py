"""One connection, one job: as a row of a table, or field by field."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from syncline.cli.output import print_fields, print_json, record
from syncline.cli.views.attempts import show_attempts
from syncline.connection_name import ConnectionName
from syncline.model import Attempt, Brought, Connection, Job
from syncline.policy.schedule import sync_of
from syncline.text import error_text, reason_text


def connection_row(connection: Connection) -> tuple[Any, ...]:
    sync = sync_of(connection.metadata)
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


def name_of(connection: Connection) -> ConnectionName:
    return ConnectionName(connection.tenant_id, connection.provider_slug, connection.external_id)


def show_connection(connection: Connection, as_json: bool) -> None:
    if as_json:
        print_json(record(connection))
        return
    print_fields(
        {
            "ID": connection.id,
            "Name": name_of(connection),
            "Tenant": connection.tenant_id,
            "Provider": connection.provider_slug,
            "External id": connection.external_id,
            "Status": connection.status,
            "Reason": connection.status_reason,
            "Config": connection.config,
            **{f"sync.{name}": value for name, value in sync_of(connection.metadata).items()},
            "Created": connection.created_at,
            "Updated": connection.updated_at,
        }
    )


def _seconds(interval: Any) -> Any:
    return f"{interval} s" if isinstance(interval, int) else interval


def _instant(text: Any) -> Any:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return text


def show_job(
    job: Job,
    as_json: bool,
    name: ConnectionName | None = None,
    attempts: Sequence[Attempt] | None = None,
) -> None:
    """Show a job, and its failed attempts if they are given."""
    if as_json:
        named = {} if name is None else {"connection": str(name)}
        failed = None if attempts is None else [record(one) for one in attempts]
        print_json(record(job) | named | ({} if failed is None else {"failed_attempts": failed}))
        return
    print_fields(
        {
            "ID": job.id,
            "Tenant": job.tenant_id,
            "Provider": job.provider_slug,
            "Connection": job.connection_id if name is None else f"{name} ({job.connection_id})",
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
            **_brought(job.brought),
        }
    )
    if attempts:
        show_attempts(attempts)


def _brought(brought: Brought | None) -> dict[str, Any]:
    if brought is None:
        return {}
    return {
        "Signals": brought.signals,
        "Calls": brought.calls,
        "Ran": f"{brought.milliseconds} ms",
        "Cursor before": brought.cursor_before,
        "Cursor after": brought.cursor_after,
    }
