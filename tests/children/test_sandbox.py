"""What a sandbox shows of this host; nothing is started here."""

import os
from pathlib import Path

import pytest

from syncline.children.sandbox import needed_by, proxy_environment


def test_a_program_needs_its_environment_and_its_interpreter(tmp_path: Path) -> None:
    """Every link on the way to them counts too."""
    base, environment = tmp_path / "python-3", tmp_path / "environment"
    for folder in (
        base / "bin",
        base / "lib" / "python3.11",
        environment / "bin",
        tmp_path / "bin",
    ):
        folder.mkdir(parents=True)
    (base / "bin" / "python3").touch()
    (base / "lib" / "python3.11" / "os.py").touch()
    (environment / "pyvenv.cfg").touch()
    (tmp_path / "bin" / "python").symlink_to(base / "bin" / "python3")
    (environment / "bin" / "python").symlink_to("../../bin/python")
    (environment / "bin" / "tap").write_text(f"#!{environment}/bin/python\n")
    (tmp_path / "bin" / "tap").symlink_to(environment / "bin" / "tap")

    found = needed_by(tmp_path / "bin" / "tap")

    assert {os.path.relpath(path, tmp_path) for path in found} == {
        "bin/tap",
        "environment",
        "environment/bin/python",
        "bin/python",
        "python-3/bin/python3",
        "python-3",
    }


@pytest.mark.parametrize(
    "content", [b"", b"#!", b"\x7fELF", b"#!/nowhere/python", b"#!/bin/python3", b"#!python"]
)
def test_a_program_that_names_no_interpreter_is_shown_alone(tmp_path: Path, content: bytes) -> None:
    """Its folder stays hidden, because it may be somebody's home."""
    program = tmp_path / "bin" / "tap"
    program.parent.mkdir()
    program.write_bytes(content)

    shown = [path for path in needed_by(program) if program.is_relative_to(path)]
    assert shown == [str(program)]


def test_the_proxy_variables_are_set_in_both_cases() -> None:
    found = proxy_environment()

    assert {found[name] for name in ("HTTP_PROXY", "https_proxy", "all_proxy")} == {
        "http://127.0.0.1:3128"
    }
    assert (found["NO_PROXY"], found["no_proxy"]) == ("", "")
