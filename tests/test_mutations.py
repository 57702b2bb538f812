"""The catalogue of `make mutations` keeps up with the source."""

from pathlib import Path

import pytest
from mutations.catalogue import MUTATIONS, Mutation

import syncline

SOURCE = Path(syncline.__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.protection)
def test_a_protection_is_where_the_catalogue_says(mutation: Mutation) -> None:
    text = (SOURCE / mutation.file).read_text()

    assert [before for before, _ in mutation.changes if before not in text] == []
