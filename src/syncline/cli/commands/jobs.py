"""`syncline jobs …`: what ran, runs and will run."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer

from syncline.cli.commands.job_batches import change_many, check_choice_of_jobs
from syncline.cli.options import (
    AsJson,
    Before,
    JobId,
    Limit,
    OfConnection,
    OfProvider,
    OfTenant,
    SomeJob,
    Yes,
)
from syncline.cli.output import print_json, print_table, record, tell_more
from syncline.cli.session import session_of
from syncline.cli.views.rows import show_job
from syncline.model import JobStatus, JobType
from syncline.text import error_text

commands = typer.Typer(
    help="Look at jobs, retry and cancel them.",
    no_args_is_help=True,
    epilog="Example: syncline jobs list --status failed",
)

OfType = Annotated[JobType | None, typer.Option("--type", help="Only of this type.")]
AllJobs = Annotated[bool, typer.Option("--all", help="Choose many by their status alone.")]


class Retried(StrEnum):
    FAILED = "failed"
    CANCELLED = "cancelled"
    BACKOFF = "backoff"


class Cancelled(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"


@commands.command("list", epilog="Example: syncline jobs list --status failed --limit 10")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    status: Annotated[JobStatus | None, typer.Option(help="Only in this status.")] = None,
    type: OfType = None,
    before: Before = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    found = session_of(context).call(
        lambda engine: engine.jobs.list(
            tenant_id=tenant,
            provider_slug=provider,
            connection_id=connection,
            status=status,
            job_type=type,
            before=before,
            limit=limit,
        )
    )
    if json:
        print_json([record(job) for job in found])
        return
    print_table(
        ("ID", "Tenant", "Connection", "Type", "Status", "Failures", "Due", "Finished", "Error"),
        [
            (
                job.id,
                job.tenant_id,
                job.connection_id,
                job.job_type,
                job.status,
                job.attempts,
                max(job.scheduled_at, job.retry_after or job.scheduled_at),
                job.finished_at,
                error_text(job.error),
            )
            for job in found
        ],
        dispensable=("Finished", "Tenant", "Due", "Type", "Failures", "Connection"),
    )
    tell_more(found, limit, "--before")


@commands.command(epilog="Example: syncline jobs show 01993f8e-6a42-7b11-8e0c-5d2f1c9a7e34")
def show(context: typer.Context, job: JobId, json: AsJson = False) -> None:
    """Show everything about a job."""
    show_job(session_of(context).call(lambda engine: engine.jobs.get(job)), json)


@commands.command(epilog="Example: syncline jobs retry --provider github --yes")
def retry(
    context: typer.Context,
    job: SomeJob = None,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    type: OfType = None,
    status: Annotated[Retried, typer.Option(help="With many: which of them.")] = Retried.FAILED,
    all_jobs: AllJobs = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Run a job again, now; or, by filter, many.

    One that waits becomes due; of one that failed or was cancelled a new one is made. Of many,
    only each connection's last job of a type is taken.
    """
    which = _which(tenant, provider, connection, type)
    check_choice_of_jobs(job, which, all_jobs)
    session = session_of(context)
    if job is not None:
        show_job(session.call(lambda engine: engine.jobs.retry(job)), json)
        return
    change_many(session, "retry", lambda e: e.jobs.retry, [status.value], which, yes=yes, json=json)


@commands.command(epilog="Example: syncline jobs cancel --tenant acme --status queued")
def cancel(
    context: typer.Context,
    job: SomeJob = None,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    type: OfType = None,
    status: Annotated[
        Cancelled | None, typer.Option(help="With many: which of them. Default: both.")
    ] = None,
    all_jobs: AllJobs = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Cancel a queued or running job; or, by filter, many.

    A worker that runs one stops when it next renews its lease.
    """
    which = _which(tenant, provider, connection, type)
    check_choice_of_jobs(job, which, all_jobs)
    session = session_of(context)
    if job is not None:
        show_job(session.call(lambda engine: engine.jobs.cancel(job)), json)
        return
    states = [status.value] if status else [choice.value for choice in Cancelled]
    change_many(session, "cancel", lambda e: e.jobs.cancel, states, which, yes=yes, json=json)


def _which(
    tenant: str | None, provider: str | None, connection: UUID | None, type: JobType | None
) -> dict[str, Any]:
    return {
        "tenant_id": tenant,
        "provider_slug": provider,
        "connection_id": connection,
        "job_type": type,
    }
