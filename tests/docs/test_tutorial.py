"""The tutorial, followed literally: its files are written and its commands run."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "first-connector.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"`([\w./]+\.(?:py|json))`")
PORT = "8123"
NUMBERS = {"ten": 10, "eleven": 11, "twelve": 12}
PROMPT = "\x1e"  # ends what a command printed


@dataclass(frozen=True)
class File:
    name: str
    text: str


@dataclass(frozen=True)
class Command:
    line: str
    expected: tuple[str, ...]


def steps(text: str) -> Iterator[File | Command]:
    """Yield the steps of the page; the last file named before a block is the block's file."""
    end = 0
    for block in BLOCK.finditer(text):
        language, content = block.groups()
        if language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                line, *expected = part.splitlines()
                yield Command(line, tuple(expected))
        elif language in ("python", "json"):
            yield File(FILE_NAME.findall(text[end : block.start()])[-1], content)
        end = block.end()


def plain_environment() -> dict[str, str]:
    """Return a reader's environment, in which Python buffers its output to pipes."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


class Shell:
    """One shell for all commands, as a reader has it."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=plain_environment() | {"PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.run("set -m")

    def run(self, line: str) -> tuple[str, int]:
        """Return what a command printed, and its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f'{line}\nprintf "\\036%s\\036" "$?"\n')
        self.process.stdin.flush()
        printed = ""
        while printed.count(PROMPT) < 2:
            read = self.process.stdout.read(1)
            assert read, printed
            printed += read
        output, code, _ = printed.split(PROMPT)
        return output, int(code)

    def close(self) -> None:
        self.run("kill $(jobs -p) 2>/dev/null; wait")
        assert self.process.stdin is not None
        self.process.stdin.close()
        with self.process:
            self.process.wait(10)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.mark.process
def test_the_tutorial_leads_to_a_connector_that_passes(
    shell: Shell, tmp_path: Path, unused_tcp_port: int
) -> None:
    text = PAGE.read_text("utf-8").replace(PORT, str(unused_tcp_port))
    folder = tmp_path
    commands = 0
    for step in steps(text):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text)
            continue
        commands += 1
        output, code = shell.run(step.line)
        assert_printed(step, output, code)
        if step.line.startswith("cd "):
            folder = folder / step.line.removeprefix("cd ")
        if step.line.endswith("&"):
            await_server(unused_tcp_port)

    promised = re.search(r"running in an engine: (\w+) commands", text)
    assert promised is not None
    assert NUMBERS[promised[1]] == commands


def assert_printed(command: Command, output: str, code: int) -> None:
    """Every line of the page must be in the output, in order; spaces between columns may differ."""
    shown = squeezed(output)
    place = 0
    for line in command.expected:
        found = shown.find(squeezed(line), place)
        assert found >= 0, f"$ {command.line}\nlacks {line!r}:\n{output}"
        place = found
    may_fail = any(line.startswith("syncline: ") for line in command.expected)
    assert code == 0 or may_fail, f"$ {command.line}\n{output}"


def squeezed(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def await_server(port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("the server did not start")
