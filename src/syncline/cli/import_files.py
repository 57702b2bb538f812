"""What `connections import` reads: CSV with a header, or an object of JSON a line."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

import typer

from syncline.cli.options import refuse_constant

if TYPE_CHECKING:
    from syncline.services.connection_batches import NewConnection

LONGEST_CELL = 1_000_000
NAMES = {"tenant": "tenant_id", "provider": "provider_slug", "interval": "interval_seconds"}
REQUIRED = ("tenant_id", "provider_slug", "external_id")
FIELDS = (*REQUIRED, "config", "interval_seconds")


class Form(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a file: what it asks for, or what is wrong with it."""

    line: int
    text: str
    new: "NewConnection | None" = None
    problem: str | None = None


def read_entries(stream: TextIO, form: Form) -> Iterator[Entry]:
    """Return what each line asks for, read as it goes; empty lines are passed over."""
    return _read_csv(stream) if form is Form.CSV else _read_ndjson(stream)


def _read_ndjson(stream: TextIO) -> Iterator[Entry]:
    for number, line in enumerate(stream, 1):
        text = line.rstrip("\n")
        if not text.strip():
            continue
        try:
            yield Entry(number, text, _from_object(_parse(text)))
        except ValueError as error:
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


def _entry_of_cells(line: int, names: list[str], cells: list[str]) -> Entry:
    text = json.dumps(cells, ensure_ascii=False)
    if len(cells) != len(names):
        problem = f"the line has {len(cells)} cells; the header has {len(names)}"
        return Entry(line, text, problem=problem)
    values: dict[str, Any] = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
    try:
        if "config" in values:
            values["config"] = _parse(values["config"], "config: ")
        if "interval_seconds" in values:
            values["interval_seconds"] = _integer(values["interval_seconds"])
        return Entry(line, text, _from_object(values))
    except ValueError as error:
        return Entry(line, text, problem=str(error))


def _check_header(names: Iterable[str]) -> None:
    names = list(names)
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in FIELDS]
    if missing or unknown or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"the first line must name the columns {', '.join(REQUIRED)} and may name config and "
            f"interval_seconds; it names {', '.join(names) or 'none'}"
        )


def _from_object(value: Any) -> "NewConnection":
    from syncline.services.connection_batches import NewConnection

    if not isinstance(value, Mapping):
        raise ValueError(f"the line is {type(value).__name__}; it must be an object")
    fields = {_field(name): field for name, field in value.items()}
    if unknown := [name for name in fields if name not in FIELDS]:
        raise ValueError(f"{unknown[0]!r} is no field; {', '.join(FIELDS)} are")
    return NewConnection(**{**dict.fromkeys(REQUIRED, ""), **fields})


def _field(name: str) -> str:
    return NAMES.get(name, name)


def _parse(text: str, where: str = "") -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}not JSON: {error}") from None


def _integer(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"interval_seconds is {text!r}; it must be an integer")
    return int(text)
