"""`syncline jobs retry` and `cancel` for many jobs: which, how many, and are you sure."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure
from syncline.cli.interrupts import Interrupts
from syncline.cli.output import print_json
from syncline.cli.progress import confirm, progress
from syncline.cli.session import Session, perform
from syncline.model import Job

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.job_batches import BatchReport

Change = Callable[["Engine"], Callable[[UUID], Awaitable[Job]]]


def change_many(
    session: Session,
    verb: str,
    change: Change,
    states: Sequence[str],
    which: dict[str, Any],
    *,
    yes: bool,
    json: bool,
) -> None:
    """Find the jobs, ask, and change each; end with 1 where some could not be changed."""

    async def work(_interrupts: Interrupts) -> "BatchReport":
        from syncline.services.job_batches import change_each
        from syncline.store.queue.job_batches import Which

        async with session.engine() as engine:
            found = await engine.batches.find(Which(**which), states)
            if found:
                confirm(f"{verb.capitalize()} {_counted(len(found))}?", yes=yes)
            with progress(verb, len(found)) as advance:
                return await change_each(found, change(engine), advance)

    with session.logs():
        report = perform(work)
    if json:
        print_json(asdict(report))
    else:
        print(f"{verb}: {_counted(report.done)}.")
    if report.refused:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in report.refused.items())
        raise Failure(f"{_counted(sum(report.refused.values()))} could not be changed: {reasons}")


def check_choice_of_jobs(job: UUID | None, which: dict[str, Any], all_jobs: bool) -> None:
    """Refuse a job together with a filter, and neither of them."""
    filtered = any(value is not None for value in which.values())
    if job is not None and (filtered or all_jobs):
        raise typer.BadParameter("give either a JOB or what chooses many, such as --tenant")
    if job is None and not filtered and not all_jobs:
        raise typer.BadParameter("give a JOB, or choose many with --tenant, --provider, … or --all")


def _counted(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"
