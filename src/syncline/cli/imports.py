"""Reads files for `connections import`: CSV with a header, or one JSON object per line."""

import csv
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import refuse_constant
from syncline.cli.progress import Advance
from syncline.errors import Invalid
from syncline.private_files import create_file

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.connections import NewConnection
    from syncline.services.declarations import KnownProviders

BATCH_SIZE = 1000
LONGEST_CELL = 1_000_000
ALIASES = {"tenant": "tenant_id", "provider": "provider_slug", "interval": "interval_seconds"}
REQUIRED = ("tenant_id", "provider_slug", "external_id")
FIELDS = (*REQUIRED, "config", "interval_seconds")


class ImportFormat(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


@dataclass(slots=True)
class ImportReport:
    added: int = 0
    existing: int = 0
    rejected: int = 0
    rejected_file: str | None = None


async def import_entries(
    engine: "Engine",
    entries: Iterator["Entry"],
    rejections: "Rejections",
    advance: Advance,
    *,
    force: bool = False,
) -> None:
    """Add the connections batch by batch, and count them in the report of the rejections.

    Without `force`, lines that their connectors refuse are rejected.
    """
    report = rejections.report
    known = None if force else await engine.declarations.known()
    while batch := list(itertools.islice(entries, BATCH_SIZE)):
        batch = [_judged(entry, known) for entry in batch]
        wanted = [entry.new for entry in batch if entry.new is not None]
        outcomes = iter(await engine.connections.create_many(wanted))
        for entry in batch:
            outcome = next(outcomes) if entry.new is not None else None
            problem = entry.problem if outcome is None else outcome.problem
            if problem is not None:
                rejections.add(entry, str(problem))
            elif outcome is not None and outcome.is_new:
                report.added += 1
            else:
                report.existing += 1
            advance(len(entry.text) + 1)


class Rejections:
    """Writes rejected lines to a file, which is created at the first rejection."""

    def __init__(self, path: Path, report: ImportReport) -> None:
        self.report = report
        self._path = path
        self._stream: TextIO | None = None

    def __enter__(self) -> "Rejections":
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, entry: "Entry", problem: str) -> None:
        if self._stream is None:
            try:
                self._stream = create_file(self._path)
            except OSError as error:
                raise Failure(f"cannot write {self._path}: {error.strerror}") from None
            self.report.rejected_file = str(self._path)
        self.report.rejected += 1
        rejected = {"line": entry.line, "problem": problem, "text": entry.text}
        self._stream.write(json.dumps(rejected, ensure_ascii=True) + "\n")


@contextmanager
def open_import(file: Path) -> Iterator[tuple[TextIO, int | None]]:
    """Open the file and yield it with its size; `-` is stdin, whose size is None.

    Bytes that are not UTF-8 reject their own line, not the whole file.
    """
    if str(file) == "-":
        yield sys.stdin, None
        return
    try:
        size = file.stat().st_size
        stream = file.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from None
    with stream:
        yield stream, size


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a file: the connection it describes, or the problem with it."""

    line: int
    text: str
    new: "NewConnection | None" = None
    problem: str | None = None


def _judged(entry: Entry, known: "KnownProviders | None") -> Entry:
    """Return the entry, with its problem if its connector refuses it."""
    new = entry.new
    if new is None or known is None or not isinstance(new.config or {}, dict):
        return entry
    problems = known.problems(new.provider_slug, new.config or {})
    if not problems:
        return entry
    return Entry(entry.line, entry.text, problem="; ".join(map(str, problems)))


def read_entries(stream: TextIO, format: ImportFormat) -> Iterator[Entry]:
    """Yield an entry for each line as it is read; empty lines are skipped."""
    return _read_csv(stream) if format is ImportFormat.CSV else _read_ndjson(stream)


def _read_ndjson(stream: TextIO) -> Iterator[Entry]:
    for number, line in enumerate(stream, 1):
        text = line.rstrip("\n")
        if not text.strip():
            continue
        try:
            yield Entry(number, text, _from_object(_parse(text)))
        except Invalid as error:
            yield Entry(number, text, problem=str(error))


def _read_csv(stream: TextIO) -> Iterator[Entry]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(stream, strict=True)
    names = [_field(name.strip()) for name in next(reader, [])]
    _check_header(names)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Entry(reader.line_num, "", problem=f"not CSV: {error}")
            continue
        if cells:
            yield _entry_of_cells(reader.line_num, names, cells)


def _check_header(names: Iterable[str]) -> None:
    names = list(names)
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in FIELDS]
    if missing or unknown or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"the first line must name the columns {', '.join(REQUIRED)} and may name config and "
            f"interval_seconds; it names {', '.join(names) or 'none'}"
        )


def _entry_of_cells(line: int, names: list[str], cells: list[str]) -> Entry:
    text = json.dumps(cells, ensure_ascii=False)
    if len(cells) != len(names):
        problem = f"the line has {len(cells)} cells; the header has {len(names)}"
        return Entry(line, text, problem=problem)
    values: dict[str, Any] = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
    try:
        if "config" in values:
            values["config"] = _parse(values["config"], "config")
        if "interval_seconds" in values:
            values["interval_seconds"] = _integer(values["interval_seconds"])
        return Entry(line, text, _from_object(values))
    except Invalid as error:
        return Entry(line, text, problem=str(error))


def _from_object(value: Any) -> "NewConnection":
    from syncline.services.connections import NewConnection

    if not isinstance(value, Mapping):
        raise Invalid("the line", f"is {type(value).__name__}; it must be an object")
    fields = {_field(name): field for name, field in value.items()}
    if unknown := [name for name in fields if name not in FIELDS]:
        raise Invalid(repr(unknown[0]), f"is unknown; the fields are {', '.join(FIELDS)}")
    return NewConnection(**{**dict.fromkeys(REQUIRED, ""), **fields})


def _field(name: str) -> str:
    return ALIASES.get(name, name)


def _parse(text: str, field: str = "the line") -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(field, f"is not JSON: {error}") from None


def _integer(text: str) -> int:
    if not text.strip().isdecimal():
        raise Invalid("interval_seconds", f"is {text!r}; it must be an integer")
    return int(text)
