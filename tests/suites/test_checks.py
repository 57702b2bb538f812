"""Each rule of `python -m checks` notices what breaks it, and leaves good code alone."""

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from checks.commits import complain
from checks.migrations import check_migrations
from checks.rules import (
    Finding,
    Module,
    banned_names,
    deep_nesting,
    gerund_modules,
    long_functions,
    long_modules,
    many_parameters,
    mixins,
)

Find = Callable[[Module], Iterator[Finding]]

LONG = "def story():\n" + "    step()\n" * 40
DEEP = """
def walk():
    for a in b:
        if a:
            with c:
                while d:
                    e()
"""
ELIF = """
def choose(a):
    if a == 1:
        b()
    elif a == 2:
        c()
    elif a == 3:
        d()
    elif a == 4:
        e()
"""
ROUTE = "@router.get('/jobs')\nasync def list_jobs(a, b, c, d, e, f): ...\n"


@pytest.mark.parametrize(
    ("find", "path", "text"),
    [
        pytest.param(long_modules, "a.py", "x = 1\n" * 401, id="long module"),
        pytest.param(long_functions, "a.py", LONG, id="long function"),
        pytest.param(many_parameters, "a.py", "def f(a, b, c, d, *, e, g): ...", id="parameters"),
        pytest.param(deep_nesting, "a.py", DEEP, id="nesting"),
        pytest.param(banned_names, "store/utils.py", "", id="module that says nothing"),
        pytest.param(banned_names, "a.py", "class Desk: ...", id="metaphor"),
        pytest.param(gerund_modules, "cli/showing.py", "", id="-ing"),
        pytest.param(mixins, "a.py", "class A(B, C): ...", id="two bases"),
        pytest.param(mixins, "a.py", "class ListMixin: ...", id="mixin"),
    ],
)
def test_a_rule_notices_what_breaks_it(find: Find, path: str, text: str) -> None:
    assert list(find(Module(PurePosixPath(path), text)))


@pytest.mark.parametrize(
    ("find", "text"),
    [
        pytest.param(long_modules, "x = 1\n" * 400, id="400 lines"),
        pytest.param(long_functions, "def story():\n" + "    step()\n" * 39, id="40 lines"),
        pytest.param(many_parameters, "class A:\n def f(self, a, b, c, d, e): ...", id="self"),
        pytest.param(many_parameters, ROUTE, id="a route declares its query"),
        pytest.param(deep_nesting, ELIF, id="elif is one level"),
        pytest.param(mixins, "class A(B, Generic[T]): ...", id="a marker beside a base"),
    ],
)
def test_a_rule_leaves_good_code_alone(find: Find, text: str) -> None:
    assert not list(find(Module(PurePosixPath("a.py"), text)))


@pytest.mark.parametrize(
    "subject",
    ["Collapse missed slots into one catch-up run", "Bring the cursor up to date", "Feed it"],
)
def test_an_imperative_sentence_is_a_good_subject(subject: str) -> None:
    assert complain(subject) is None


@pytest.mark.parametrize(
    "subject",
    ["add a rule", "Add a rule.", "Added a rule", "Adding a rule", "Adds a rule", "A" * 66],
)
def test_other_subjects_are_refused(subject: str) -> None:
    assert complain(subject) is not None


def test_a_number_of_migrations_that_two_have_is_noticed(tmp_path: Path) -> None:
    for name in ("0001_one.sql", "0002_two.sql", "0002_too.sql"):
        (tmp_path / name).touch()

    assert len(check_migrations(tmp_path)) == 1
    (tmp_path / "0002_too.sql").rename(tmp_path / "0003_too.sql")
    assert check_migrations(tmp_path) == []
