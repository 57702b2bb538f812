"""Any Singer tap as a provider: records become signals, the state becomes the cursor.

Each tap that `syncline singer add` installed is a provider of the same name.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.children.process import private_folder
from syncline.clock import host_time
from syncline.connectors.foreign.catalog import Catalogs
from syncline.connectors.foreign.connector import ForeignConnector
from syncline.connectors.foreign.environments import InstalledProgram, InstalledPrograms
from syncline.connectors.foreign.host import redactor, write_json
from syncline.connectors.foreign.options import Options, options_schema, read_options
from syncline.connectors.foreign.pages import (
    PageBuffer,
    dedupe_key,
    kind_of,
    parse_line,
    parse_time,
    read_pages,
)
from syncline.connectors.foreign.specification import secret_values
from syncline.errors import Permanent, SyncError, Transient
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread
from syncline.sdk.connector import Connector

SINGER = "singer"
DELETED_AT = "_sdc_deleted_at"
TABLE_VERSION = "_sdc_table_version"


def installed_taps(home: Path | None = None) -> list[Connector]:
    """Return a connector for each installed tap."""
    return [SingerTap(tap) for tap in InstalledPrograms(SINGER, home).all()]


class SingerTap(ForeignConnector):
    """Syncs with one tap, in a new process for each sync.

    Config: `settings`, the tap's own; `streams`, names or patterns of the streams to sync (default:
    those that the tap selects); `page_size` (default 1000); `snapshots`; `ignored_fields`.
    Credentials override settings. Both are written to a file that only this user can read.
    """

    def __init__(self, tap: InstalledProgram) -> None:
        super().__init__(tap.executable, [tap.environment])
        self.provider = tap.name
        self.title = f"{tap.name} (Singer)"
        self.config_schema = options_schema(tap.settings_schema)
        self._tap = tap
        self._catalogs = Catalogs(self, tap.capabilities)

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        options = read_options(connection, self._tap.settings_schema)
        secret = secret_values(options.settings, self._tap.settings_schema)
        redact = redactor(connection.credentials, secret)
        page = PageBuffer(options.page_size)
        translation = Translation(options, page)
        with private_folder() as folder:
            config = write_json(folder / "config.json", options.settings)
            arguments: list[str | Path] = ["--config", config]
            catalog = await self._catalogs.chosen(options, folder, redact)
            if catalog is not None:
                path = await in_thread(write_json, folder / "catalog.json", catalog)
                arguments += [self._catalogs.option, path]
            if cursor is not None:
                arguments += ["--state", write_json(folder / "state.json", cursor)]
            async with (
                self.running(arguments, inputs=folder, redact=redact) as tap,
                aclosing(read_pages(tap, translation, page)) as results,
            ):
                async for result in results:
                    yield result

    async def discover(self, connection: Connection) -> dict[str, Any]:
        """Return the tap's catalog for a connection's settings."""
        options = read_options(connection, self._tap.settings_schema)
        redact = redactor(connection.credentials)
        with private_folder() as folder:
            write_json(folder / "config.json", options.settings)
            return await self._catalogs.discover(folder, redact)


@dataclass(slots=True)
class Described:
    """What a SCHEMA message says about a stream."""

    keys: list[str] = field(default_factory=list)
    replication_key: str | None = None


class Translation:
    """Turns a tap's messages into signals and states, in order."""

    def __init__(self, options: Options, page: PageBuffer) -> None:
        self._options = options
        self._page = page
        self._streams: dict[str, Described] = {}
        self.failure: SyncError | None = None  # taps report failures only on stderr

    def take(self, line: bytes) -> None:
        """Take one line of the tap's output."""
        if not line.strip():
            return
        message = parse_line(line)
        if not isinstance(message, dict):
            raise Transient(f"the tap wrote a line that is not a Singer message: {line[:100]!r}")
        match message.get("type"):
            case "RECORD":
                self._take_record(message, len(line))
            case "STATE":
                self._page.keep_state(message.get("value"))
            case "SCHEMA":
                self._take_schema(message, len(line))
            case "ACTIVATE_VERSION":
                self._take_version(message)
            case "BATCH":
                raise Permanent(
                    "the tap writes batches to files; remove batch_config from its settings"
                )

    def _take_record(self, message: Mapping[str, Any], size_bytes: int) -> None:
        stream, record = str(message.get("stream")), message.get("record")
        if not isinstance(record, dict):
            raise Transient(f"a record of {stream} is not an object")
        if not self._options.selects(stream):
            return
        described = self._streams.get(stream) or Described()
        version = message.get("version")
        if version is not None:
            record = {**record, TABLE_VERSION: version}
        is_deleted = bool(record.get(DELETED_AT))
        kept_apart = version if self._options.snapshots else None
        self._page.add(
            Signal(
                kind=kind_of(stream, "deleted" if is_deleted else ""),
                occurred_at=self._time(record, described, message),
                payload=record,
                dedupe_key=dedupe_key(
                    stream, described.keys, record, kept_apart, self._options.ignored_fields
                ),
            ),
            size_bytes,
        )

    def _time(self, record: Mapping[str, Any], described: Described, message: Any) -> Any:
        """Return the best known time of a record."""
        candidates = (
            record.get(DELETED_AT),
            record.get(described.replication_key or ""),
            message.get("time_extracted"),
            record.get("_sdc_extracted_at"),
        )
        return next((time for time in map(parse_time, candidates) if time), None) or host_time()

    def _take_schema(self, message: Mapping[str, Any], size_bytes: int) -> None:
        stream = str(message.get("stream"))
        keys = [str(key) for key in message.get("key_properties") or ()]
        bookmarks = [str(key) for key in message.get("bookmark_properties") or ()]
        self._streams[stream] = Described(keys, bookmarks[0] if bookmarks else None)
        if self._options.selects(stream):
            schema = {
                "stream": stream,
                "schema": message.get("schema"),
                "key_properties": keys,
                "bookmark_properties": bookmarks,
            }
            self._add_event(stream, "schema", schema, size_bytes)

    def _take_version(self, message: Mapping[str, Any]) -> None:
        stream = str(message.get("stream"))
        if self._options.selects(stream):
            version = {"stream": stream, "version": message.get("version")}
            self._add_event(stream, "version_activated", version, 0)

    def _add_event(self, stream: str, event: str, payload: dict[str, Any], size_bytes: int) -> None:
        """Add a signal about a whole stream; the same event is stored once."""
        key = dedupe_key(kind_of(stream, event), (), payload)
        self._page.add(Signal(kind_of(stream, event), host_time(), payload, key), size_bytes)
