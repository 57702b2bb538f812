"""`syncline signals tail` and `export`: everything that connectors bring, as it comes or whole."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.exports import Format, Output, open_sink
from syncline.cli.interrupts import Interrupts
from syncline.cli.options import OfConnection, OfKind, OfProvider, OfTenant
from syncline.cli.output import plain_line, record, say
from syncline.cli.progress import progress
from syncline.cli.session import perform, session_of
from syncline.model import StoredSignal

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.store.listings.signals import SignalFilter

commands = typer.Typer()
A_PAGE = 1000
LOOK_SECONDS = 0.5
SERVER_CHANGED = (
    "The database server was started anew, promoted or restored. If that lost commits, signals "
    "shown above are stored no more; they come again once their provider is asked again."
)

Since = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", parser=lambda text: _instant(text), help="Stored from then on."),
]
Until = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", parser=lambda text: _instant(text), help="Stored before then."),
]


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time, such as 2026-11-15T08:00Z") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@commands.command(epilog="Example: syncline signals tail --tenant acme --json")
def tail(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with what is there already.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print an object a line.")] = False,
) -> None:
    """Show signals as they are stored, each once and none left out.

    Ctrl-C leaves. A signal is shown once every older transaction of the server has ended.
    """
    session = session_of(context)

    async def work(interrupts: Interrupts) -> None:
        async with session.engine() as engine:
            wanted = _wanted(tenant, connection, provider, kind)
            await _follow(engine, wanted, interrupts, from_start=from_start, json=json)

    with session.logs():
        perform(work)


async def _follow(
    engine: "Engine",
    wanted: "SignalFilter",
    interrupts: Interrupts,
    *,
    from_start: bool,
    json: bool,
) -> None:
    from syncline.store.listings.follow import START

    stop = asyncio.Event()
    interrupts.react = stop.set
    position = START if from_start else await engine.signals.position()
    while not stop.is_set():
        followed = await engine.signals.follow(wanted, position=position, limit=A_PAGE)
        for signal in followed.signals:
            print(plain_line(record(signal)) if json else _line(signal))
        sys.stdout.flush()
        if followed.server_changed:
            say(SERVER_CHANGED)
        position = followed.position
        if followed.is_caught_up:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue


def _line(signal: StoredSignal) -> str:
    from syncline.text import one_line, shortened

    received = f"{signal.received_at.astimezone(UTC):%H:%M:%S}"
    whose = f"{signal.tenant_id} {signal.provider_slug} {signal.kind}"
    return f"{received}  {one_line(whose)}  {shortened(one_line(plain_line(signal.payload)), 120)}"


@commands.command(epilog="Example: syncline signals export --tenant acme -o acme.csv --format csv")
def export(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    since: Since = None,
    until: Until = None,
    format: Annotated[Format, typer.Option(help="Parquet needs pyarrow.")] = Format.NDJSON,
    output: Output = None,
) -> None:
    """Write signals to a file, the oldest first.

    Everything stored before the export began is in it. It holds no transaction open, and a file
    gets its name only once it is complete.
    """
    session = session_of(context)
    columns = [field.name for field in fields(StoredSignal)]

    async def work(_interrupts: Interrupts) -> int:
        async with session.engine() as engine:
            end = until or await engine.now()
            wanted = _wanted(tenant, connection, provider, kind, since, end)
            with open_sink(format, columns, output) as sink, _over_time(end) as passed:
                count, page = 0, None
                while True:
                    found = await engine.signals.page(
                        wanted, after=page, newest_first=False, limit=A_PAGE
                    )
                    sink.write([record(signal) for signal in found.items])
                    count += len(found.items)
                    passed(found.items)
                    page = found.next_page
                    if page is None:
                        return count

    with session.logs():
        count = perform(work)
    say(f"Exported {count:,} signals.")


@contextmanager
def _over_time(end: datetime) -> Iterator[Any]:
    """Show how far an export has come by when its signals were stored: counting would read all."""
    with progress("export", 100) as advance:
        place = Place(None, 0.0)

        def passed(signals: Sequence[StoredSignal]) -> None:
            if not signals:
                return
            first = place.first or signals[0].received_at
            span = (end - first).total_seconds() or 1
            share = 100 * (signals[-1].received_at - first).total_seconds() / span
            advance(max(share - place.share, 0))
            place.first, place.share = first, share

        yield passed


@dataclass(slots=True)
class Place:
    first: datetime | None
    share: float


def _wanted(
    tenant: str | None,
    connection: UUID | None,
    provider: str | None,
    kind: str | None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> "SignalFilter":
    from syncline.store.listings.signals import SignalFilter

    return SignalFilter(tenant, connection, provider, kind, since, until)
