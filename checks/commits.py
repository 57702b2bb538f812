"""Commit subjects: a plain imperative sentence that a stranger understands."""

import re
import subprocess
from pathlib import Path

LONGEST = 65
SINCE = "6e624cf"  # 0.1.0; older subjects are history
REASON = "`git log --oneline` is the story of the project."
# "Adds", "Added" and "Adding" describe; "Add" is what applying the commit does.
DESCRIBES = re.compile(r"^(?:\w+(?<!e)ed|\w+ing|(?:Add|Fix|Remove|Change|Update|Make)s)\b")
IMPERATIVES_IN_ED_OR_ING = {"Bring", "Embed", "Feed", "Heed", "Need", "Ping", "Seed", "Speed"}


def check_subjects(repository: Path) -> list[str]:
    """Return complaints about the commits since 0.1.0; none if there is no history."""
    return [
        f"commit {commit}: {complaint} ({subject!r}). {REASON}"
        for commit, subject in _subjects(repository)
        if (complaint := complain(subject)) is not None
    ]


def complain(subject: str) -> str | None:
    """Return what is wrong with a subject."""
    first = subject.partition(" ")[0]
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters; {LONGEST} is the most"
    if not first[:1].isupper() or subject.endswith("."):
        return "the subject is a sentence: it begins with a capital and ends without a full stop"
    if DESCRIBES.match(subject) and first not in IMPERATIVES_IN_ED_OR_ING:
        return "the subject is in the imperative: 'Add', not 'Added' or 'Adding'"
    return None


def _subjects(repository: Path) -> list[tuple[str, str]]:
    command = ["git", "log", "--no-merges", "--format=%h%x09%s", f"{SINCE}..HEAD"]
    try:
        listed = subprocess.run(
            command, cwd=repository, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []  # a source archive or a shallow clone
    return [(line.split("\t")[0], line.split("\t", 1)[1]) for line in listed.splitlines()]
