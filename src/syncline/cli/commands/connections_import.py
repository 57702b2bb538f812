"""`syncline connections import`: thousands of connections from a file."""

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from syncline.cli.errors import Failure
from syncline.cli.import_files import Entry, Form, read_entries
from syncline.cli.interrupts import Interrupts
from syncline.cli.options import AsJson
from syncline.cli.output import print_json
from syncline.cli.progress import Advance, progress
from syncline.cli.session import perform, session_of
from syncline.private_files import create_file

if TYPE_CHECKING:
    from syncline.app import Engine

commands = typer.Typer()

A_BATCH = 1000


@dataclass(slots=True)
class ImportReport:
    added: int = 0
    existing: int = 0
    rejected: int = 0
    rejected_file: str | None = None


@commands.command("import", epilog="Example: syncline connections import accounts.csv")
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV or lines of JSON; - reads stdin.")
    ],
    format: Annotated[
        Form | None, typer.Option(help="Of the file. Default: CSV if it is named .csv.")
    ] = None,
    rejected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where bad lines go. Default: FILE.rejected."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Add connections from a file. Those that are there already are passed over.

    Cut short, it can be run again. Fields: tenant_id, provider_slug, external_id, and optionally
    config (an object) and interval_seconds.
    """
    form = format or (Form.CSV if file.suffix.lower() == ".csv" else Form.NDJSON)
    bad_lines = rejected or Path(f"{'stdin' if str(file) == '-' else file}.rejected")
    session = session_of(context)
    report = ImportReport()

    async def work(_interrupts: Interrupts) -> None:
        with _opened(file) as (stream, size), Rejections(bad_lines, report) as rejections:
            async with session.engine() as engine:
                with progress("import", size) as advance:
                    await _import(engine, read_entries(stream, form), rejections, advance)

    with session.logs():
        perform(work)
    _tell(report, json)


async def _import(
    engine: "Engine", entries: Iterator[Entry], rejections: "Rejections", advance: Advance
) -> None:
    report = rejections.report
    while batch := list(itertools.islice(entries, A_BATCH)):
        wanted = [entry.new for entry in batch if entry.new is not None]
        outcomes = iter(await engine.connections.create_many(wanted))
        for entry in batch:
            outcome = next(outcomes) if entry.new is not None else None
            problem = entry.problem if outcome is None else outcome.problem
            if problem is not None:
                rejections.add(entry, problem)
            elif outcome is not None and outcome.is_new:
                report.added += 1
            else:
                report.existing += 1
            advance(len(entry.text) + 1)


class Rejections:
    """Writes bad lines down; the file is made when there is the first."""

    def __init__(self, path: Path, report: ImportReport) -> None:
        self.report = report
        self._path = path
        self._stream: TextIO | None = None

    def __enter__(self) -> "Rejections":
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, entry: Entry, problem: str) -> None:
        if self._stream is None:
            try:
                self._stream = create_file(self._path)
            except OSError as error:
                raise Failure(f"{self._path} cannot be written: {error.strerror}") from None
            self.report.rejected_file = str(self._path)
        self.report.rejected += 1
        bad = {"line": entry.line, "problem": problem, "text": entry.text}
        self._stream.write(json.dumps(bad, ensure_ascii=True) + "\n")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[TextIO, int | None]]:
    """Lend the file and its size. What is no UTF-8 is refused line by line, not as a whole."""
    if str(file) == "-":
        yield sys.stdin, None
        return
    try:
        size = file.stat().st_size
        stream = file.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}") from None
    with stream:
        yield stream, size


def _tell(report: ImportReport, json: bool) -> None:
    if json:
        print_json(asdict(report))
    else:
        print(f"Added {report.added:,} connections; {report.existing:,} were there already.")
    if report.rejected:
        lines = "1 line was" if report.rejected == 1 else f"{report.rejected:,} lines were"
        raise Failure(f"{lines} rejected: see {report.rejected_file}")
