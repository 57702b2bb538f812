"""The loop that the command line runs on."""

import asyncio
import sys

import pytest

from syncline import eventloop


async def kind_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_the_command_line_runs_on_uvloop_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")

    assert eventloop.run(kind_of_loop()).startswith("uvloop")


def test_the_command_line_does_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # an import of it fails

    assert eventloop.run(kind_of_loop()).startswith("asyncio")
