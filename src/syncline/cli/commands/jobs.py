"""`syncline jobs …`: what ran, runs and will run."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure
from syncline.cli.named import NamedConnection, OfConnection, id_of, named, names_of
from syncline.cli.options import (
    AfterInJobs,
    AsJson,
    JobId,
    Limit,
    OfProvider,
    OfTenant,
    SomeJob,
    Yes,
    confirm,
)
from syncline.cli.output import hint_next, print_json, print_table, record
from syncline.cli.progress import progress
from syncline.cli.session import Session, perform, session_of
from syncline.cli.views.rows import show_job
from syncline.connection_name import ConnectionName
from syncline.model import Attempt, Job, JobFilter, JobOrder, JobStatus, JobType
from syncline.text import error_text

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.jobs import BatchReport
    from syncline.services.pagination import Listing

commands = typer.Typer(
    help="Show, retry and cancel jobs.",
    no_args_is_help=True,
    epilog="Example: syncline jobs list --status failed",
)

OfType = Annotated[JobType | None, typer.Option("--type", help="Only jobs of this type.")]
OfError = Annotated[
    str | None, typer.Option(metavar="CLASS", help="Only jobs whose error has this class.")
]
FinishedSince = Annotated[
    str, typer.Option(metavar="TIME", help="Only jobs that finished since: a time, or 24h.")
]
AllJobs = Annotated[bool, typer.Option("--all", help="Choose many jobs by status alone.")]
Change = Callable[["Engine"], Callable[[UUID], Awaitable[Job]]]
COLUMNS = (
    *("ID", "Connection", "Type", "Status"),
    *("Failures", "Due", "Finished", "Took", "Error"),
)
DISPENSABLE = ("Due", "Finished", "Type", "Failures", "Took", "Connection")


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
    status: Annotated[JobStatus | None, typer.Option(help="Only jobs with this status.")] = None,
    type: OfType = None,
    error: OfError = None,
    since: FinishedSince = "",
    order: Annotated[JobOrder, typer.Option(help="Newest or slowest first.")] = JobOrder.NEWEST,
    after: AfterInJobs = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest or slowest first."""
    from syncline.api.dashboard.filters import read_time

    async def read(engine: "Engine") -> tuple["Listing[Job]", dict[UUID, ConnectionName]]:
        listed = await engine.jobs.list(
            tenant_id=tenant,
            provider_slug=provider,
            connection_id=await id_of(engine, connection),
            status=status,
            job_type=type,
            error_class=error,
            finished_after=read_time("--since", since, await engine.now()),
            order=order,
            after=after,
            limit=limit,
        )
        return listed, await names_of(engine, listed)

    found, names = session_of(context).call(read)
    if json:
        print_json([record(job) | named(job, names) for job in found])
    else:
        print_table(COLUMNS, [_row(job, names) for job in found], dispensable=DISPENSABLE)
    hint_next(found)


def _took(job: Job) -> timedelta | None:
    return job.finished_at - job.started_at if job.finished_at and job.started_at else None


def _row(job: Job, names: Mapping[UUID, ConnectionName]) -> tuple[Any, ...]:
    return (
        job.id,
        names.get(job.connection_id, job.connection_id),
        job.job_type,
        job.status,
        job.attempts,
        max(job.scheduled_at, job.retry_after or job.scheduled_at),
        job.finished_at,
        str(took).split(".")[0] if (took := _took(job)) is not None else "",
        error_text(job.error),
    )


@commands.command(epilog="Example: syncline jobs show 01993f8e-6a42-7b11-8e0c-5d2f1c9a7e34")
def show(context: typer.Context, job: JobId, json: AsJson = False) -> None:
    """Show a job in full, with its last failed attempts, their traces and their calls."""

    async def read(engine: "Engine") -> tuple[Job, list[Attempt], dict[UUID, ConnectionName]]:
        found = await engine.jobs.get(job)
        return found, await engine.jobs.attempts(job), await names_of(engine, [found])

    found, attempts, names = session_of(context).call(read)
    show_job(found, json, names.get(found.connection_id), attempts)


@commands.command(epilog="Example: syncline jobs retry --provider github --yes")
def retry(
    context: typer.Context,
    job: SomeJob = None,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    type: OfType = None,
    status: Annotated[
        Retried, typer.Option(help="Which jobs, when you choose many.")
    ] = Retried.FAILED,
    all_jobs: AllJobs = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Run one job again now, or many by filter.

    A waiting job becomes due. A failed or cancelled job gets a new job. Among many, only the last
    job of each type of a connection is retried.
    """
    which = Which(tenant, provider, connection, type)
    _check_choice(job, which, all_jobs)
    session = session_of(context)
    if job is not None:
        show_job(session.call(lambda engine: engine.jobs.retry(job)), json)
        return
    batch = JobBatch("retry", "Retried", lambda engine: engine.jobs.retry, [status.value], which)
    batch.run(session, yes=yes, json=json)


@commands.command(epilog="Example: syncline jobs cancel --tenant acme --status queued")
def cancel(
    context: typer.Context,
    job: SomeJob = None,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    type: OfType = None,
    status: Annotated[
        Cancelled | None, typer.Option(help="Which jobs, when you choose many. Default: both.")
    ] = None,
    all_jobs: AllJobs = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Cancel one queued or running job, or many by filter.

    A worker stops a running job when it next renews the lease.
    """
    which = Which(tenant, provider, connection, type)
    _check_choice(job, which, all_jobs)
    session = session_of(context)
    if job is not None:
        show_job(session.call(lambda engine: engine.jobs.cancel(job)), json)
        return
    states = [status.value] if status else [choice.value for choice in Cancelled]
    batch = JobBatch("cancel", "Cancelled", lambda engine: engine.jobs.cancel, states, which)
    batch.run(session, yes=yes, json=json)


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs a command applies to; None stands for any."""

    tenant: str | None
    provider: str | None
    connection: NamedConnection | None
    type: JobType | None

    async def filter(self, engine: "Engine") -> JobFilter:
        return JobFilter(
            tenant_id=self.tenant,
            provider_slug=self.provider,
            connection_id=await id_of(engine, self.connection),
            job_type=self.type,
        )


def _check_choice(job: UUID | None, which: Which, all_jobs: bool) -> None:
    """Refuse a job together with a filter, and refuse neither."""
    filtered = which != Which(None, None, None, None)
    if job is not None and (filtered or all_jobs):
        raise typer.BadParameter("give either a JOB or a filter such as --tenant, not both")
    if job is None and not filtered and not all_jobs:
        raise typer.BadParameter("give a JOB, a filter such as --tenant or --provider, or --all")


@dataclass(frozen=True, slots=True)
class JobBatch:
    """One change to many jobs: its verb before and after, and which jobs it applies to."""

    verb: str
    done: str
    change: Change
    states: Sequence[str]
    which: Which

    def run(self, session: Session, *, yes: bool, json: bool) -> None:
        """Find the jobs, ask, and change each; fail if some could not be changed."""
        with session.logs():
            report = perform(lambda _interrupts: self._change_all(session, yes=yes))
        if json:
            print_json(asdict(report))
        else:
            print(f"{self.done} {_counted(report.done)}.")
        if report.refused:
            reasons = "; ".join(f"{count} x {reason}" for reason, count in report.refused.items())
            refused = _counted(sum(report.refused.values()))
            raise Failure(f"{refused} could not be changed: {reasons}")

    async def _change_all(self, session: Session, *, yes: bool) -> "BatchReport":
        from syncline.services.jobs import change_each

        async with session.engine() as engine:
            found = await engine.jobs.find(await self.which.filter(engine), self.states)
            if found:
                confirm(f"{self.verb.capitalize()} {_counted(len(found))}?", yes=yes)
            with progress(self.verb, len(found)) as advance:
                return await change_each(found, self.change(engine), advance)


def _counted(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"
