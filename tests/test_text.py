"""Times, durations, errors and untrusted text in words."""

import ast
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import syncline.api
from support.world import at
from syncline.text import ago, duration, error_text, one_line, reason_text, until

NOW = at("12:00")
API = Path(syncline.api.__file__).parent


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0.0421, "42 ms"),
        (1.25, "1.2 s"),
        (59, "59 s"),
        (90, "2 min"),
        (7200, "2 h"),
        (864_000, "10 d"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


def test_instants() -> None:
    assert ago(NOW, at("11:59:57")) == "3.0 s ago"
    assert ago(NOW, at("12:01")) == "0.0 s ago"
    assert until(NOW, at("12:15")) == "in 15 min"
    assert until(NOW, at("11:00")) == "now"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        ({"class": "Transient", "message": "503"}, "Transient: 503"),
        ({"message": "by hand"}, "by hand"),
        ({"message": None, "class": 5}, "5: None"),
        ({"other": 1}, "{'other': 1}"),
        (["odd"], "['odd']"),
        ("plain", "plain"),
        (
            {"class": "Transient", "message": "token=hunter2 was\nrefused"},
            "Transient: token=*** was refused",
        ),
    ],
)
def test_errors(error: Any, text: str) -> None:
    assert error_text(error) == text


def test_reasons() -> None:
    assert reason_text({"why": "moving house", "since": "…"}) == "moving house"
    assert reason_text({"class": "Transient", "message": "503"}) == "Transient: 503"
    assert reason_text(None) == ""


def test_nothing_steers_a_terminal() -> None:
    assert one_line("a\x1b[2Jb\x07\u202ec") == r"a\x1b[2Jb\x07\u202ec"


def test_no_answer_of_ours_is_masked_by_its_own_filter() -> None:
    spoken = {
        node.value
        for path in API.rglob("*.py")
        if path.name != "openapi.py"  # the description of the API, which nothing masks
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert any("send a key" in text for text in spoken)
    assert [text for text in sorted(spoken) if "***" in one_line(text)] == []
