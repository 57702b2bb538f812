"""The config of a connection to a third-party program."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from syncline.connectors.foreign.specification import problems
from syncline.errors import Permanent
from syncline.model import Connection

LARGEST_PAGE = 10_000
KNOWN = {"settings", "streams", "page_size", "snapshots", "ignored_fields"}


def options_schema(settings: Any, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of a config; credentials may hold required settings as well."""
    described = dict(settings) if isinstance(settings, Mapping) else {}
    described.pop("required", None)
    names = {"type": "array", "items": {"type": "string", "minLength": 1}}
    size = {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "default": 1000}
    return {
        "type": "object",
        "required": list(more),
        "properties": {
            **more,
            "settings": {**described, "type": "object", "title": "Settings"},
            "streams": {**names, "title": "Streams"},
            "page_size": {**size, "title": "Page size"},
            "snapshots": {"type": "boolean", "title": "Snapshots", "default": False},
            "ignored_fields": {**names, "title": "Ignored fields"},
        },
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class Options:
    """The checked config."""

    settings: dict[str, Any]
    streams: tuple[str, ...] = ()
    page_size: int = 1000
    snapshots: bool = False
    ignored_fields: frozenset[str] = frozenset()

    def selects(self, stream: str) -> bool:
        """Return whether a stream is wanted; without patterns, the program decides."""
        return not self.streams or any(fnmatchcase(stream, one) for one in self.streams)


def read_options(
    connection: Connection, schema: Any, also_known: frozenset[str] = frozenset()
) -> Options:
    """Return the checked config, or raise `Permanent` with every field that is wrong."""
    config = connection.config if isinstance(connection.config, Mapping) else {}
    wrong = [f"config.{name} is unknown" for name in config.keys() - KNOWN - also_known]
    settings, credentials = config.get("settings", {}), connection.credentials
    if not isinstance(settings, dict):
        wrong.append("config.settings is not an object")
        settings = {}
    if isinstance(credentials, Mapping):
        settings = {**settings, **credentials}
    streams, page_size = config.get("streams", []), config.get("page_size", 1000)
    if not isinstance(streams, list) or not all(isinstance(one, str) and one for one in streams):
        wrong.append("config.streams is not a list of names or patterns")
        streams = []
    if type(page_size) is not int or not 1 <= page_size <= LARGEST_PAGE:
        wrong.append(f"config.page_size is not a number from 1 to {LARGEST_PAGE}")
        page_size = 1000
    if not isinstance(config.get("snapshots", False), bool):
        wrong.append("config.snapshots is not true or false")
    ignored = config.get("ignored_fields", [])
    if not isinstance(ignored, list) or not all(isinstance(one, str) and one for one in ignored):
        wrong.append("config.ignored_fields is not a list of names")
        ignored = []
    wrong += problems(settings, schema, "config.settings")
    if wrong:
        raise Permanent("; ".join(sorted(wrong)))
    snapshots = config.get("snapshots", False)
    return Options(settings, tuple(streams), page_size, snapshots, frozenset(ignored))
