"""The examples of the client's guide, run as they stand against a real server."""

import asyncio
import re
import sys
from pathlib import Path

from support.served import bring, served
from support.world import World
from syncline.connectors.demo import DemoTickets

GUIDE = Path(__file__).parents[2] / "docs/guide/client.md"


async def test_the_examples_run(world: World, tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    assert len(examples) == 4
    world.engine.providers["demo"] = DemoTickets()
    _, key = await world.engine.access.create_key("reader")
    await bring(world, await world.connection(), [42], kind="ticket_created")
    printed = []
    async with served(world) as url:
        for example in examples:
            script = tmp_path / "example.py"
            text = example.replace("http://127.0.0.1:8080", url).replace("KEY", repr(key))
            script.write_text(text)
            printed.append(await run(script))

    first, second, third, fourth = printed
    assert first.startswith("queued ")
    assert "a-1 None" in first
    assert second.startswith("{'active': 2}\n[UUID(")
    assert "{'n': 42}" in third
    assert fourth.startswith("interval_seconds ")


async def run(script: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(script)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
