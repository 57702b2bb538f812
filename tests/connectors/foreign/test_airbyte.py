"""Airbyte manifests, with a small program that speaks the protocol instead of the real one."""

import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from syncline import Connection, Permanent, SyncResult
from syncline.connectors.foreign.airbyte import AirbyteManifest

MANIFEST = {
    "spec": {"connection_specification": {"required": ["records"], "type": "object"}},
    "streams": [],
}
PROGRAM = """
import json, sys
from pathlib import Path
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
config = json.loads(Path(options["--config"]).read_text())
def write(**message): print(json.dumps(message), flush=True)
write(type="LOG", log={"level": "INFO", "message": "begins"})
if sys.argv[1] == "discover":
    orders = {"name": "orders", "supported_sync_modes": ["full_refresh", "incremental"],
              "default_cursor_field": ["updated"], "source_defined_primary_key": [["id"]]}
    write(type="CATALOG", catalog={"streams": [orders, {"name": "people"}]})
    sys.exit()
if "fetch" in config:
    import urllib.request
    try: urllib.request.urlopen(config["fetch"], timeout=5)
    except OSError as error: config["error"] = {"message": "forbidden"}
[state, *_] = json.loads(Path(options["--state"]).read_text()) or [None]
after = state["stream"]["stream_state"]["after"] if state else 0
for stream in json.loads(Path(options["--catalog"]).read_text())["streams"]:
    name = stream["stream"]["name"]
    for n in range(after, config["records"]):
        record = {"id": n, "updated": f"2025-01-01T00:00:{n:02}Z"}
        if "stamp" in config:
            record |= {"fetched_at": config["stamp"], "_airbyte_extracted_at": config["stamp"]}
        write(type="RECORD", record={"stream": name, "data": record, "emitted_at": 1735689600000})
    last = {"stream_descriptor": {"name": name}, "stream_state": {"after": config["records"]}}
    write(type="STATE", state={"type": "STREAM", "stream": last})
if "error" in config:
    write(type="TRACE", trace={"type": "ERROR", "error": config["error"]})
    sys.exit(1)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def airbyte(program: str) -> AirbyteManifest:
    """The program as an operator runs it without a sandbox."""
    airbyte = AirbyteManifest(program)
    airbyte.sandboxed = False
    return airbyte


@pytest.fixture
def sandboxed_airbyte(program: str, sandbox: None) -> AirbyteManifest:
    return AirbyteManifest(program)


def connection(**config: Any) -> Connection:
    return Connection(uuid4(), "acme", "airbyte", "a", status="active", config=config, metadata={})


async def pages_of(airbyte: AirbyteManifest, cursor: Any = None, **config: Any) -> list[SyncResult]:
    return [page async for page in airbyte.sync(connection(**config), cursor)]


@pytest.mark.parametrize("fixture", ["airbyte", "sandboxed_airbyte"])
async def test_a_manifest_delivers_what_is_new_since_its_state(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    airbyte: AirbyteManifest = request.getfixturevalue(fixture)
    config = {"manifest": MANIFEST, "streams": ["orders"], "page_size": 2}

    pages = await pages_of(airbyte, settings={"records": 5}, **config)
    assert [[one.payload["id"] for one in page.signals] for page in pages] == [[0, 1], [2, 3], [4]]
    [first, *_] = pages[0].signals
    assert (first.kind, first.occurred_at.isoformat()) == ("orders", "2025-01-01T00:00:00+00:00")
    assert [page.next_cursor is None for page in pages] == [True, True, False]

    cursor = pages[-1].next_cursor
    [page] = await pages_of(airbyte, cursor, settings={"records": 6}, **config)
    assert [one.payload["id"] for one in page.signals] == [5]


async def test_a_timestamp_added_by_the_source_does_not_make_a_record_new(
    airbyte: AirbyteManifest,
) -> None:
    config = {"manifest": MANIFEST, "streams": ["orders"], "ignored_fields": ["fetched_at"]}
    runs = [
        await pages_of(airbyte, settings={"records": 2, "stamp": stamp}, **config)
        for stamp in ("2025-02-01T00:00:00Z", "2025-02-02T00:00:00Z")
    ]

    [first, second] = [[one for page in pages for one in page.signals] for pages in runs]
    assert [one.payload["fetched_at"] for one in second] == ["2025-02-02T00:00:00Z"] * 2
    assert [one.dedupe_key for one in first] == [one.dedupe_key for one in second]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "config.manifest must be an object"),
        ({"manifest": MANIFEST}, "config.settings.records is missing"),
        (
            {"manifest": MANIFEST, "settings": {"records": 1}, "streams": ["x"]},
            "selects none of: orders, people",
        ),
        (
            {
                "manifest": MANIFEST,
                "settings": {
                    "records": 1,
                    "error": {"failure_type": "config_error", "message": "wrong key"},
                },
            },
            "wrong key",
        ),
    ],
    ids=["manifest", "settings", "streams", "told by the program"],
)
async def test_an_invalid_config_is_reported(
    airbyte: AirbyteManifest, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(Permanent, match=told):
        await pages_of(airbyte, **config)


async def test_a_refused_address_is_reported_even_if_the_program_hides_it(
    sandboxed_airbyte: AirbyteManifest,
) -> None:
    settings = {"records": 1, "fetch": "http://10.0.0.1/"}
    with pytest.raises(Permanent, match=r"^10\.0\.0\.1 resolves to 10\.0\.0\.1, .*\(forbidden\)$"):
        await pages_of(sandboxed_airbyte, manifest=MANIFEST, settings=settings)
