"""The fault suite aims at single statements; what it aims by must be found in one alone."""

import importlib
import pkgutil

import pytest
from faults.kinds.processes import CLAIM, SETTLE, TICK

import syncline.store
from syncline.store.data import connections
from syncline.store.queue import claims, jobs


def statements() -> list[str]:
    names = [
        module.name for module in pkgutil.walk_packages(syncline.store.__path__, "syncline.store.")
    ]
    modules = [importlib.import_module(name) for name in names]
    texts = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    return sorted(texts)


@pytest.mark.parametrize(
    ("aim", "statement"),
    [
        (CLAIM, claims.CLAIM),
        (SETTLE, connections.SAVE_PROGRESS),
        (TICK, jobs.ENQUEUE_PLANNED),
    ],
)
def test_a_trap_is_sprung_by_one_statement_alone(aim: str, statement: str) -> None:
    """A trap for a settle that a claim springs tests nothing that it says."""
    assert [one for one in statements() if aim in one] == [statement]
