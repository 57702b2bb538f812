"""A small Singer tap, as a program of its own: its records come from a file of JSON lines."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS = {
    "type": "object",
    "required": ["source"],
    "properties": {
        "source": {"type": "string"},
        "password": {"type": ["string", "null"], "secret": True},
        "state_every": {"type": "integer"},
    },
}
ABOUT = {
    "name": "tap-fake",
    "version": "1.0",
    "capabilities": ["catalog", "discover", "state", "about"],
    "settings": SETTINGS,
}


def write(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--config", "--catalog", "--state", "--format"):
        parser.add_argument(option)
    parser.add_argument("--discover", action="store_true")
    parser.add_argument("--about", action="store_true")
    options = parser.parse_args()
    if options.about:
        print(json.dumps(ABOUT))
        return
    config = json.loads(Path(options.config).read_text())
    source = Path(config["source"])
    note(config, options)
    if options.discover:
        print(json.dumps({"streams": [describe(name) for name in ("orders", "people")]}))
        return
    streams = [describe(name) | {"selected": True} for name in ("orders", "people")]
    if options.catalog:
        streams = json.loads(Path(options.catalog).read_text())["streams"]
    state = json.loads(Path(options.state).read_text()) if options.state else {}
    for stream in streams:
        if stream["selected"]:
            sync(stream["stream"], source, config, state)
    sys.exit(config.get("exit", 0))


def note(config: dict[str, Any], options: argparse.Namespace) -> None:
    """Write down how it was started, for tests that ask."""
    if "notes" in config:
        told = {"argv": sys.argv, "environ": dict(os.environ), "pid": os.getpid()}
        told["mode"] = oct(Path(options.config).stat().st_mode & 0o777)
        with Path(config["notes"]).open("a") as file:
            file.write(json.dumps(told) + "\n")
    if "password" in config:
        print(f"INFO signing in with {config['password']}", file=sys.stderr, flush=True)
    if "says" in config:
        print(config["says"], file=sys.stderr, flush=True)


def describe(stream: str) -> dict[str, Any]:
    metadata = [{"breadcrumb": [], "metadata": {"inclusion": "available"}}]
    return {
        "tap_stream_id": stream,
        "stream": stream,
        "key_properties": ["id"],
        "schema": {"type": "object"},
        "metadata": metadata,
    }


def sync(stream: str, source: Path, config: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the records of a stream in the file, from its bookmark on and including it."""
    write(
        type="SCHEMA",
        stream=stream,
        schema={"type": "object", "properties": {"id": {"type": "integer"}}},
        key_properties=["id"],
        bookmark_properties=["updated"],
    )
    after = state.get(stream, "")
    every, count = config.get("state_every", 10), 0
    for line in source.open():
        record = json.loads(line)
        if record.pop("stream") != stream or record["updated"] < after:
            continue
        version = {"version": config["version"]} if "version" in config else {}
        write(type="RECORD", stream=stream, record=record, **version)
        count += 1
        state[stream] = record["updated"]
        if count % every == 0:
            write(type="STATE", value=state)
        misbehave(config, count)
    if "version" in config:
        write(type="ACTIVATE_VERSION", stream=stream, version=config["version"])
    write(type="STATE", value=state)


def misbehave(config: dict[str, Any], count: int) -> None:
    time.sleep(config.get("pause", 0))
    if count == config.get("garbage_after"):
        print("Hello, world!", flush=True)
    if count == config.get("hang_after"):
        # With a child that holds on to its output and will not hear of an end.
        child = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", child])
        Path(config["child"]).write_text(str(process.pid))
        time.sleep(600)


if __name__ == "__main__":
    main()
