"""The catalogue of `make mutations` keeps up with the source and the tests."""

from pathlib import Path

from mutations.catalogue import MUTATIONS

import syncline

SOURCE = Path(syncline.__file__).parent
ROOT = Path(__file__).parents[2]


def test_each_protection_is_where_the_catalogue_says() -> None:
    for mutation in MUTATIONS:
        source = (SOURCE / mutation.file).read_text()

        assert mutation.switch_off(source) != source, mutation.protection


def test_each_protection_has_its_test() -> None:
    for mutation in MUTATIONS:
        file, _, name = mutation.test.partition("::")

        assert f"def {name}(" in (ROOT / file).read_text(), mutation.protection


def test_each_protection_is_listed_once() -> None:
    names = [mutation.protection for mutation in MUTATIONS]
    changes = [(mutation.file, mutation.changes) for mutation in MUTATIONS]

    assert len(set(names)) == len(names)
    assert len(set(changes)) == len(changes)
