"""`syncline signals …`: what connectors returned. List it, follow it, or export it."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.exports import Format, Output, Sink, open_sink
from syncline.cli.interrupts import Interrupts, stopped_within
from syncline.cli.named import NamedConnection, OfConnection, id_of, named, names_of
from syncline.cli.options import After, AsJson, Limit, OfJob, OfKind, OfProvider, OfTenant
from syncline.cli.output import hint_next, plain_line, print_json, print_table, record, say
from syncline.cli.progress import progress
from syncline.cli.session import perform, session_of
from syncline.connection_name import ConnectionName
from syncline.model import StoredSignal
from syncline.text import one_line, shortened

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.model import SignalFilter
    from syncline.services.pagination import Listing
    from syncline.services.signals import SignalFilterFields

commands = typer.Typer(
    help="List, follow and export signals.",
    no_args_is_help=True,
    epilog="Example: syncline signals list --tenant acme",
)
BATCH_SIZE = 1000
POLL_SECONDS = 0.5
SERVER_CHANGED = (
    "The database server was restarted, promoted or restored. If that lost commits, some signals "
    "shown above are no longer stored; they come again when their provider is synced again."
)

Since = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME", parser=lambda text: _instant(text), help="Stored at this time or later."
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME", parser=lambda text: _instant(text), help="Stored before this time."
    ),
]


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it as in 2026-11-15T08:00Z"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@commands.command("list", epilog="Example: syncline signals list --kind ticket_created --json")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    job: OfJob = None,
    after: After = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List signals in the order they were stored."""
    chosen = Chosen(tenant, provider, kind, job)

    async def read(
        engine: "Engine",
    ) -> tuple["Listing[StoredSignal]", dict[UUID, ConnectionName]]:
        wanted = await _fields(engine, connection, chosen)
        listed = await engine.signals.list(**wanted, after=after, limit=limit)
        return listed, await names_of(engine, listed)

    found, names = session_of(context).call(read)
    if json:
        print_json([record(signal) | named(signal, names) for signal in found])
    else:
        print_table(
            ("ID", "Connection", "Kind", "Occurred", "Payload"),
            [_row(signal, names) for signal in found],
            dispensable=("Payload", "Occurred"),
        )
    hint_next(found)


def _row(signal: StoredSignal, names: Mapping[UUID, ConnectionName]) -> tuple[Any, ...]:
    connection = names.get(signal.connection_id, signal.connection_id)
    return (signal.id, connection, signal.kind, signal.occurred_at, signal.payload)


@commands.command(epilog="Example: syncline signals tail --tenant acme --json")
def tail(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    job: OfJob = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start with the signals that exist.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show signals as they are stored, each exactly once. Ctrl-C exits.

    A signal appears once every older transaction on the server has ended.
    """
    session, chosen = session_of(context), Chosen(tenant, provider, kind, job)

    async def work(interrupts: Interrupts) -> None:
        from syncline.model import SignalFilter

        async with session.engine() as engine:
            wanted = SignalFilter(**await _fields(engine, connection, chosen))
            await follow(engine, wanted, interrupts, from_start=from_start, json=json)

    with session.logs():
        perform(work)


async def follow(
    engine: "Engine",
    wanted: "SignalFilter",
    interrupts: Interrupts,
    *,
    from_start: bool,
    json: bool,
) -> None:
    """Print signals as they are stored, until an interrupt."""
    from syncline.model import START

    stop = asyncio.Event()
    interrupts.react = stop.set
    position = START if from_start else await engine.signals.position()
    while not stop.is_set():
        followed = await engine.signals.follow(wanted, position=position, limit=BATCH_SIZE)
        for signal in followed.signals:
            print(plain_line(record(signal)) if json else _line(signal))
        sys.stdout.flush()
        if followed.server_changed:
            say(SERVER_CHANGED)
        position = followed.position
        if followed.is_caught_up:
            await stopped_within(stop, POLL_SECONDS)


def _line(signal: StoredSignal) -> str:
    received = f"{signal.received_at.astimezone(UTC):%H:%M:%S}"
    source = f"{signal.tenant_id} {signal.provider_slug} {signal.kind}"
    return f"{received}  {one_line(source)}  {shortened(one_line(plain_line(signal.payload)), 120)}"


@commands.command(epilog="Example: syncline signals export --tenant acme -o acme.csv --format csv")
def export(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    job: OfJob = None,
    since: Since = None,
    until: Until = None,
    format: Annotated[Format, typer.Option(help="Parquet needs pyarrow.")] = Format.NDJSON,
    output: Output = None,
) -> None:
    """Write signals to a file, oldest first.

    The export holds everything stored before it began. It keeps no transaction open, and the file
    gets its name when it is complete.
    """
    session, chosen = session_of(context), Chosen(tenant, provider, kind, job)
    columns = [field.name for field in fields(StoredSignal)]

    async def work(_interrupts: Interrupts) -> int:
        async with session.engine() as engine:
            end = until or await engine.now()
            wanted = await _fields(engine, connection, chosen)
            wanted |= {"since": since, "until": end}
            with open_sink(format, columns, output) as sink, _time_progress(end) as advance:
                return await _export(engine, wanted, sink, advance)

    with session.logs():
        count = perform(work)
    say(f"Exported {count:,} signals.")


async def _export(
    engine: "Engine", wanted: "SignalFilterFields", sink: Sink, advance: "AdvanceTo"
) -> int:
    """Write every signal to the sink, and return how many there were."""
    count, after = 0, None
    while True:
        found = await engine.signals.list(**wanted, after=after, limit=BATCH_SIZE)
        sink.write([record(signal) for signal in found])
        count += len(found)
        advance(found)
        after = found.next_page
        if after is None:
            return count


AdvanceTo = Callable[[Sequence[StoredSignal]], None]


@contextmanager
def _time_progress(end: datetime) -> Iterator[AdvanceTo]:
    """Show progress by the time signals were stored: counting them would read them all."""
    with progress("export", 100) as advance:
        place = Place(None, 0.0)

        def advance_to(signals: Sequence[StoredSignal]) -> None:
            if not signals:
                return
            first = place.first or signals[0].received_at
            span = (end - first).total_seconds() or 1
            share = 100 * (signals[-1].received_at - first).total_seconds() / span
            advance(max(share - place.share, 0))
            place.first, place.share = first, share

        yield advance_to


@dataclass(slots=True)
class Place:
    """The time of the first signal, and the share exported so far in per cent."""

    first: datetime | None
    share: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which signals, as the options say; None means any."""

    tenant_id: str | None
    provider_slug: str | None
    kind: str | None
    job_id: UUID | None


async def _fields(
    engine: "Engine", connection: NamedConnection | None, chosen: Chosen
) -> "SignalFilterFields":
    return {
        "tenant_id": chosen.tenant_id,
        "connection_id": await id_of(engine, connection),
        "provider_slug": chosen.provider_slug,
        "kind": chosen.kind,
        "job_id": chosen.job_id,
    }
