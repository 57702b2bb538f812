"""The examples of the API guide, run as they stand against a real server."""

import asyncio
import os
import re
import shutil
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.world import World
from syncline.api.server import Listener, serving
from syncline.connectors.demo import DemoTickets
from syncline.settings import ApiSettings

GUIDE = Path(__file__).parents[2] / "docs/guide/api.md"
# What the guide needs of jq, for machines without it.
JQ = f"""#!{sys.executable} -IS
import json, re, sys
value = json.load(sys.stdin)
for key, place in re.findall(r"\\.(\\w+)|\\[(\\d+)\\]", sys.argv[-1]):
    value = value[key] if key else value[int(place)]
print(value if "-r" in sys.argv and isinstance(value, str) else json.dumps(value))
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_examples_run(world: World, tmp_path: Path) -> None:
    examples = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    world.engine.providers["demo"] = DemoTickets()
    _, key = await world.engine.access.create_key("reader")
    with closing(Listener(ApiSettings(port=0))) as listener:
        script = "\n".join(examples).replace("http://127.0.0.1:8080", listener.url)
        async with serving(world.engine, listener, page=False):
            status, output = await run(script, tmp_path, key)

    assert status == 0, output
    lines = output.splitlines()
    assert '"id"' in lines[0]
    assert lines[1] == "2"  # created; one was there already
    assert '"interval_seconds"' in lines[2]
    assert lines[3] == "null"  # a-2 is the last
    assert lines[5:7] == ['"paused"', '"active"']
    revoked = lines.index('"revoked"')
    assert lines[revoked - 1] == "null"  # the new key was not used yet
    assert len(lines) >= 26


async def run(script: str, folder: Path, key: str) -> tuple[int, str]:
    shim = folder / "jq"
    shim.write_text(JQ)
    shim.chmod(stat.S_IRWXU)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script.replace("\ncurl", "\n\necho; curl")),
        cwd=folder,
        env={**os.environ, "SYNCLINE_KEY": key, "PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    told = "\n".join(line for line in output.decode().splitlines() if line)
    return process.returncode, told
