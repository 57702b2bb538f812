"""`python -m checks`: print what breaks the rules, and exit with 1 if anything does."""

import sys
from pathlib import Path, PurePosixPath

from checks.commits import check_subjects
from checks.exceptions import EXCEPTIONS, MOST_EXCEPTIONS
from checks.migrations import check_migrations
from checks.rules import RULES, Module, Rule

SOURCE = Path(__file__).parents[1] / "src" / "syncline"


def main() -> int:
    modules = read_modules(SOURCE)
    complaints = [line for rule in RULES for line in check(rule, modules)]
    complaints += check_subjects(Path(__file__).parents[1])
    complaints += check_migrations(SOURCE / "store" / "migrations")
    for complaint in complaints:
        print(complaint)
    if not complaints:
        print(f"{len(RULES) + 2} rules kept by {len(modules)} modules")
    return 1 if complaints else 0


def read_modules(folder: Path) -> list[Module]:
    return [
        Module(PurePosixPath(path.relative_to(folder)), path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def check(rule: Rule, modules: list[Module]) -> list[str]:
    """Return what breaks a rule, and the exceptions to it that are no longer needed."""
    excepted = EXCEPTIONS.get(rule.title, {})
    unused = set(excepted)
    complaints = []
    for module in modules:
        for finding in rule.find(module):
            if finding.name in excepted:
                unused.discard(finding.name)
            else:
                place = f"src/syncline/{module.path}:{finding.line}"
                complaints.append(f"{place}: {finding.message}; {rule.title}. {rule.reason}")
    complaints += [f"checks/exceptions.py: {name} needs no exception" for name in sorted(unused)]
    if len(excepted) > MOST_EXCEPTIONS:
        complaints.append(f"checks/exceptions.py: more than {MOST_EXCEPTIONS} for {rule.title!r}")
    return complaints


if __name__ == "__main__":
    sys.exit(main())
