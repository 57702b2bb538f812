"""Which streams a tap has, and which of them a connection wants."""

import hashlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from syncline.clock import monotonic
from syncline.connectors.foreign.connector import ForeignConnector
from syncline.connectors.foreign.host import Redact
from syncline.connectors.foreign.options import Options
from syncline.errors import Permanent, Transient
from syncline.json_bounds import JsonBounds, parse_json
from syncline.offload import in_thread, in_thread_if_large

FRESH_SECONDS = 3600.0  # discovery takes seconds, and streams rarely change
MAX_CATALOGS = 50
MAX_CATALOG_BYTES = 16 * 2**20
DISCOVERY_SECONDS = 120.0


class Catalogs:
    """A cache of one tap's catalogs, by its settings."""

    def __init__(self, tap: ForeignConnector, capabilities: list[str] | None) -> None:
        self._tap = tap
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}
        can = ("discover", "catalog") if capabilities is None else capabilities
        self._can_discover = "discover" in can
        self.option = "--catalog" if "catalog" in can else "--properties"

    async def chosen(self, options: Options, folder: Path, redact: Redact) -> Any:
        """Return the catalog with the wanted streams selected, or None if the tap has none."""
        if not self._can_discover:
            return None
        key = hashlib.sha256(json.dumps(options.settings, sort_keys=True).encode()).hexdigest()
        at, catalog = self._known.get(key, (0.0, None))
        if catalog is None or monotonic() - at > FRESH_SECONDS:
            catalog = await self.discover(folder, redact)
            if len(self._known) >= MAX_CATALOGS:
                self._known.clear()
            self._known[key] = monotonic(), catalog
        return await in_thread(select, catalog, options)

    async def discover(self, folder: Path, redact: Redact) -> dict[str, Any]:
        """Run the tap's discovery; its config is in the folder."""
        text = bytearray()
        arguments = ("--config", folder / "config.json", "--discover")
        async with self._tap.running(arguments, inputs=folder, redact=redact) as tap:
            while line := await tap.next_line(DISCOVERY_SECONDS):
                text += line
                if len(text) > MAX_CATALOG_BYTES:
                    raise Transient("the tap's catalog is too large")
            if line is None:
                raise TimeoutError("the tap did not list its streams in time")
            failure = await tap.failure()
            if failure is not None:
                raise failure
        try:
            catalog = await in_thread_if_large(len(text), parse_json, bytes(text), JsonBounds())
        except ValueError:
            catalog = None
        if not isinstance(catalog, dict) or not isinstance(catalog.get("streams"), list):
            raise Transient("the tap's output of --discover is not a catalog")
        return catalog


def stream_name(stream: Any) -> str:
    return str(stream.get("stream") or stream.get("tap_stream_id"))


def select(catalog: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the catalog with the wanted streams selected, in every form that taps read."""
    chosen = deepcopy(catalog)
    streams = [stream for stream in chosen["streams"] if isinstance(stream, dict)]
    names = sorted(map(stream_name, streams))
    for pattern in options.streams:
        if not any(Options({}, (pattern,)).selects(name) for name in names):
            there = ", ".join(names)[:500] or "none"
            raise Permanent(f"config.streams: no stream matches {pattern} (streams: {there})")
    for stream in streams:
        top = _top_metadata(stream)
        if options.streams:
            is_wanted = options.selects(stream_name(stream))
        else:
            is_wanted = top.get("selected", top.get("selected-by-default", True)) is not False
        stream["selected"] = top["selected"] = is_wanted
        if isinstance(stream.get("schema"), dict):
            stream["schema"]["selected"] = is_wanted
    return chosen


def _top_metadata(stream: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the whole stream, created if it is missing."""
    entries = stream.setdefault("metadata", [])
    for entry in entries:
        if isinstance(entry, dict) and entry.get("breadcrumb") in ([], ()):
            top: dict[str, Any] = entry.setdefault("metadata", {})
            return top
    entries.append({"breadcrumb": [], "metadata": {}})
    made: dict[str, Any] = entries[-1]["metadata"]
    return made
