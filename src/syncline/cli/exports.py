"""Export files: NDJSON, CSV, or Parquet if pyarrow is installed."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, TextIO

import typer

from syncline.cli.errors import Failure
from syncline.cli.output import plain
from syncline.private_files import completed_file

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="The file to write. Default: stdout."),
]
FORMULA_SIGNS = (
    "=",
    "+",
    "-",
    "@",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # and full-width
Records = Sequence[Mapping[str, Any]]


class Format(StrEnum):
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


class Sink(Protocol):
    def write(self, records: Records) -> None: ...


@contextmanager
def open_sink(form: Format, columns: Sequence[str], output: Path | None) -> Iterator[Sink]:
    """Open the output and yield a sink for records."""
    if form is Format.PARQUET:
        with _parquet_sink(columns, output) as parquet:
            yield parquet
        return
    with opened(output) as stream:
        yield _CsvSink(stream, columns) if form is Format.CSV else _NdjsonSink(stream)


@contextmanager
def opened(output: Path | None) -> Iterator[TextIO]:
    """Open the output and yield a stream; a file gets its name once it is complete."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with _completed(output) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


@contextmanager
def _completed(output: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            part = stack.enter_context(completed_file(output))
        except OSError as error:
            raise Failure(f"cannot write {output}: {error.strerror}") from None
        yield part


class _NdjsonSink:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, records: Records) -> None:
        self._stream.writelines(
            json.dumps(record, default=plain, ensure_ascii=False) + "\n" for record in records
        )


class _CsvSink:
    """Writes objects as JSON in their cell, and text so that it is never a formula."""

    def __init__(self, stream: TextIO, columns: Sequence[str]) -> None:
        self._columns = columns
        self._writer = csv.writer(stream)
        self._writer.writerow(columns)

    def write(self, records: Records) -> None:
        self._writer.writerows(
            [_without_formula(_cell(record[column])) for column in self._columns]
            for record in records
        )


def _without_formula(cell: Any) -> Any:
    """Return a cell that a spreadsheet shows as text, even if it begins like `=HYPERLINK(…)`.

    Spreadsheets ignore spaces before the sign. Numbers stay as they are.
    """
    if not isinstance(cell, str):
        return cell
    is_formula = cell[:1] in ("\t", "\r", "\n") or cell.lstrip().startswith(FORMULA_SIGNS)
    return f"'{cell}" if is_formula and cell else cell


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | bool):
        return json.dumps(value, default=plain, ensure_ascii=False)
    return value if value is None or isinstance(value, str | int | float) else plain(value)


@contextmanager
def _parquet_sink(columns: Sequence[str], output: Path | None) -> Iterator[Sink]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Failure("Parquet needs pyarrow: install it with `pip install pyarrow`") from None
    if output is None:
        raise typer.BadParameter("Parquet cannot be written to stdout; give a file with --output")
    times = {column for column in columns if column.endswith("_at")}
    schema = pyarrow.schema(
        [
            (column, pyarrow.timestamp("us", tz="UTC") if column in times else pyarrow.string())
            for column in columns
        ]
    )

    class ParquetSink:
        def write(self, records: Records) -> None:
            rows = [
                {name: row[name] if name in times else _text(row[name]) for name in columns}
                for row in records
            ]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))

    with (
        _completed(output) as part,
        pyarrow.parquet.ParquetWriter(part, schema, compression="zstd") as writer,
    ):
        yield ParquetSink()


def _text(value: Any) -> str | None:
    return None if value is None else str(_cell(value))
