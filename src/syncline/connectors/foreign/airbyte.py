"""Low-code Airbyte manifests, run by airbyte-cdk in a separate process.

The provider `airbyte` exists if `source-declarative-manifest` is installed: beside this interpreter
(`pip install 'syncline[airbyte]'`), or anywhere on the PATH.
"""

import hashlib
import json
import logging
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from syncline.children.process import private_folder
from syncline.clock import host_time
from syncline.connectors.foreign.connector import ForeignConnector
from syncline.connectors.foreign.host import LOG, Redact, redactor, write_json
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
from syncline.offload import in_thread, in_thread_if_large
from syncline.sdk.connector import Connector

PROGRAM = "source-declarative-manifest"
MAX_CATALOGS = 50


def installed_airbyte() -> list[Connector]:
    """Return the connector if the program that runs manifests is installed."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(PROGRAM, path=beside) or shutil.which(PROGRAM)
    return [AirbyteManifest(found)] if found else []


class AirbyteManifest(ForeignConnector):
    """Syncs with a manifest.

    Config: `manifest`, an object; `settings`, the fields of its spec; `streams`, names or patterns
    (default: all); `page_size` (default 1000); `ignored_fields`. Credentials override settings.
    """

    provider = "airbyte"
    title = "Airbyte manifest"
    config_schema = options_schema(None, manifest={"type": "object", "title": "Manifest"})

    def __init__(self, executable: str) -> None:
        super().__init__(executable)
        self._catalogs: dict[str, list[dict[str, Any]]] = {}

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        manifest = _manifest_of(connection)
        spec = (manifest.get("spec") or {}).get("connection_specification")
        options = read_options(connection, spec, frozenset({"manifest"}))
        redact = redactor(connection.credentials, secret_values(options.settings, spec))
        with private_folder() as folder:
            write_json(folder / "config.json", options.settings)
            write_json(folder / "manifest.json", manifest)
            streams = await self._wanted_streams(manifest, options, folder, redact)
            await in_thread(write_json, folder / "catalog.json", _configured(streams))
            page = PageBuffer(options.page_size)
            translation = Translation(streams, page, cursor, redact, options.ignored_fields)
            write_json(folder / "state.json", translation.states)
            more = ("--catalog", folder / "catalog.json", "--state", folder / "state.json")
            arguments = _arguments("read", folder, *more)
            async with (
                self.running(arguments, inputs=folder, redact=redact) as source,
                aclosing(read_pages(source, translation, page)) as results,
            ):
                async for result in results:
                    yield result

    async def _wanted_streams(
        self, manifest: Any, options: Options, folder: Path, redact: Redact
    ) -> list[dict[str, Any]]:
        """Return the manifest's streams that the connection wants."""
        known = json.dumps([manifest, options.settings], sort_keys=True)
        key = hashlib.sha256(known.encode()).hexdigest()
        if key not in self._catalogs:
            if len(self._catalogs) >= MAX_CATALOGS:
                self._catalogs.clear()
            self._catalogs[key] = await self._discover(folder, redact)
        streams = self._catalogs[key]
        wanted = [one for one in streams if options.selects(str(one.get("name")))]
        if not wanted:
            names = ", ".join(str(one.get("name")) for one in streams)
            raise Permanent(f"config.streams selects none of: {names}")
        return wanted

    async def _discover(self, folder: Path, redact: Redact) -> list[dict[str, Any]]:
        translation = Translation([], PageBuffer(1), None, redact)
        arguments = _arguments("discover", folder)
        async with self.running(arguments, inputs=folder, redact=redact) as source:
            while line := await source.next_line(120.0):
                await in_thread_if_large(len(line), translation.take, line)
            failure = await source.failure(translation.failure)
        if failure is not None:
            raise failure
        if translation.catalog is None:
            raise Transient("the manifest did not report its streams")
        return translation.catalog


def _arguments(verb: str, folder: Path, *more: str | Path) -> list[str | Path]:
    config, manifest = folder / "config.json", folder / "manifest.json"
    return [verb, "--config", config, "--manifest-path", manifest, *more]


def _manifest_of(connection: Connection) -> dict[str, Any]:
    config = connection.config
    manifest = config.get("manifest") if isinstance(config, Mapping) else None
    if not isinstance(manifest, dict):
        raise Permanent("config.manifest must be an object")
    return manifest


def _configured(streams: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the catalog to read: incremental for every stream that supports it."""
    configured = []
    for stream in streams:
        modes = stream.get("supported_sync_modes") or []
        mode = "incremental" if "incremental" in modes else "full_refresh"
        configured.append({"stream": stream, "sync_mode": mode, "destination_sync_mode": "append"})
    return {"streams": configured}


class Translation:
    """Turns messages of the Airbyte protocol into signals and states, in order."""

    def __init__(
        self,
        streams: list[dict[str, Any]],
        page: PageBuffer,
        cursor: Any,
        redact: Redact,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self._ignored = ignored
        self._streams = {str(one.get("name")): one for one in streams}
        self._page = page
        self._redact = redact
        given = cursor.get("streams") if isinstance(cursor, dict) else None
        self._states: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        self.catalog: list[dict[str, Any]] | None = None
        self.failure: SyncError | None = None

    @property
    def states(self) -> list[Any]:
        """The states in the program's own format."""
        return [{"type": "STREAM", "stream": state} for state in self._states.values()]

    def take(self, line: bytes) -> None:
        """Take one line of output; a line that is not a message is logged."""
        message = parse_line(line)
        match message.get("type") if isinstance(message, dict) else None:
            case "RECORD":
                self._take_record(message["record"], len(line))
            case "STATE":
                self._take_state(message["state"])
            case "CATALOG":
                self.catalog = list(message["catalog"]["streams"])
            case "TRACE" if message["trace"].get("type") == "ERROR":
                self._take_error(message["trace"].get("error") or {})
            case "LOG":
                level = logging.getLevelNamesMapping().get(str(message["log"].get("level")), 20)
                LOG.log(level, "airbyte: %s", self._redact(str(message["log"].get("message"))))
            case "TRACE" | "CONTROL" | "SPEC" | "CONNECTION_STATUS":
                pass
            case _:
                LOG.info("airbyte: %s", self._redact(line.decode(errors="replace").strip()))

    def _take_record(self, message: Mapping[str, Any], size_bytes: int) -> None:
        stream, record = str(message["stream"]), message["data"]
        described = self._streams.get(stream, {})
        keys = [str(path[-1]) for path in described.get("source_defined_primary_key") or () if path]
        cursor_field = described.get("default_cursor_field") or [""]
        emitted = message.get("emitted_at")
        fallback = datetime.fromtimestamp(emitted / 1000, UTC) if emitted else host_time()
        self._page.add(
            Signal(
                kind=kind_of(stream),
                occurred_at=parse_time(record.get(cursor_field[-1])) or fallback,
                payload=record,
                dedupe_key=dedupe_key(stream, keys, record, ignored=self._ignored),
            ),
            size_bytes,
        )

    def _take_state(self, message: Mapping[str, Any]) -> None:
        stream = message.get("stream")
        if isinstance(stream, dict):
            self._states[str((stream.get("stream_descriptor") or {}).get("name"))] = stream
            self._page.keep_state({"streams": dict(self._states)})

    def _take_error(self, error: Mapping[str, Any]) -> None:
        kind = Permanent if error.get("failure_type") == "config_error" else Transient
        self.failure = self.failure or kind(self._redact(str(error.get("message")))[:1500])
