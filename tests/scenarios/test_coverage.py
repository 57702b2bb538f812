"""Every scenario of the specification has a test, and no test claims one that does not exist."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SPEC = TESTS.parents[1] / "docs" / "spec"
REQUIREMENT = "### Requirement: "
SCENARIO = "#### Scenario: "


def test_every_scenario_has_a_test() -> None:
    missing = set(specified()) - set(claimed())

    assert not missing, listing("scenarios without a test", missing)


def test_every_claim_names_a_scenario() -> None:
    unknown = set(claimed()) - set(specified())

    assert not unknown, listing("docstrings that name no scenario of docs/spec", unknown)


def test_every_scenario_is_specified_once() -> None:
    counts = Counter(specified())

    repeated = {scenario for scenario, count in counts.items() if count > 1}
    assert counts, f"no scenarios found in {SPEC}"
    assert not repeated, listing("scenarios specified twice", repeated)


def test_a_scenario_belongs_to_the_requirement_above_it() -> None:
    page = f"{REQUIREMENT}One\n{SCENARIO}a\n- text\n{SCENARIO}b\n{REQUIREMENT}Two\n{SCENARIO}a\n"

    assert list(scenarios_in(page)) == ["One / a", "One / b", "Two / a"]


def test_a_scenario_outside_a_requirement_is_refused() -> None:
    page = f"{REQUIREMENT}One\n{SCENARIO}a\n## Next rule\n{SCENARIO}stray\n"

    with pytest.raises(ValueError, match="stray"):
        list(scenarios_in(page))


def test_only_docstrings_of_tests_are_claims() -> None:
    module = '''
"""Module / docstring"""
def given():
    """Not / a test"""
def test_plain():
    """One / a

    More about it."""
async def test_async():
    """One / b"""
def test_of_something_else():
    """Says nothing of scenarios."""
def test_bare(): ...
'''

    assert list(claims_in(module)) == ["One / a", "One / b"]


def specified() -> list[str]:
    """Return each `Requirement / Scenario` that docs/spec states."""
    return [s for page in SPEC.glob("*.md") for s in scenarios_in(page.read_text("utf-8"))]


def claimed() -> list[str]:
    """Return each `Requirement / Scenario` that a test in this folder says it shows."""
    return [c for module in TESTS.glob("*.py") for c in claims_in(module.read_text("utf-8"))]


def scenarios_in(page: str) -> Iterator[str]:
    requirement = ""
    for line in page.splitlines():
        if line.startswith(REQUIREMENT):
            requirement = line.removeprefix(REQUIREMENT).strip()
        elif line.startswith(("# ", "## ")):
            requirement = ""  # a new rule: what follows is no longer part of the requirement
        elif line.startswith(SCENARIO):
            scenario = line.removeprefix(SCENARIO).strip()
            if not requirement:
                raise ValueError(f"scenario {scenario!r} stands under no requirement")
            yield f"{requirement} / {scenario}"


def claims_in(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(module)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first_line = (ast.get_docstring(node) or "").partition("\n")[0]
        if node.name.startswith("test_") and " / " in first_line:
            yield first_line


def listing(heading: str, scenarios: set[str]) -> str:
    return "\n  ".join([f"{heading}:", *sorted(scenarios)])
