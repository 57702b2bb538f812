"""`syncline jobs …`: what ran, runs and will run."""

from typing import Annotated

import typer

from syncline.api.wording import error_text
from syncline.cli.options import AsJson, Before, JobId, Limit, OfConnection, OfProvider, OfTenant
from syncline.cli.output import print_json, print_table, record, tell_more
from syncline.cli.session import session_of
from syncline.cli.showing import show_job
from syncline.model import JobStatus, JobType

commands = typer.Typer(
    help="Look at jobs, retry and cancel them.",
    no_args_is_help=True,
    epilog="Example: syncline jobs list --status failed",
)


@commands.command("list", epilog="Example: syncline jobs list --status failed --limit 10")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    status: Annotated[JobStatus | None, typer.Option(help="Only in this status.")] = None,
    type: Annotated[JobType | None, typer.Option(help="Only of this type.")] = None,
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


@commands.command(epilog="Example: syncline jobs retry 01993f8e-6a42-7b11-8e0c-5d2f1c9a7e34")
def retry(context: typer.Context, job: JobId, json: AsJson = False) -> None:
    """Run a job again, now.

    One that waits becomes due; of one that failed or was cancelled a new one is made.
    """
    show_job(session_of(context).call(lambda engine: engine.jobs.retry(job)), json)


@commands.command(epilog="Example: syncline jobs cancel 01993f8e-6a42-7b11-8e0c-5d2f1c9a7e34")
def cancel(context: typer.Context, job: JobId, json: AsJson = False) -> None:
    """Cancel a queued or running job.

    A worker that runs it stops when it next renews its lease.
    """
    show_job(session_of(context).call(lambda engine: engine.jobs.cancel(job)), json)
