"""The security guide refers to tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/security.md").read_text("utf-8")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_guide_names_is_there() -> None:
    named = REFERENCE.findall(GUIDE)
    assert len(named) > 40

    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text())
    ]

    assert missing == []


def test_every_claim_about_an_attacker_names_a_test() -> None:
    chapter = GUIDE.partition("## What an attacker reaches")[2].partition("\n## Before")[0]
    rows = [line for line in chapter.splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| Attack |", "|---"))]

    assert len(claims) > 25
    assert [row for row in claims if not REFERENCE.search(row)] == []
