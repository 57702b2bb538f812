"""A migration that was released stays as it is: databases hold its checksum, and compare it.

Where this fails, put the file back and add a migration with the next number; CONTRIBUTING.md says
more. At a release, add the checksums of the migrations that are new in it.
"""

import pytest

from syncline.store.migrate import known_migrations

RELEASED = {
    # 0.1.0
    "0001_initial": "c7b73053348e4adf244e8fc1a47ecca61a95070dc207f7f50c373c31c579660e",
    "0002_listing_and_access": "1642146e8734152bf2bf93534e47482bbe71f04ad260432a1698d196698266ec",
    "0003_workers": "5b5813bcd2fbf8c5160c5297ae51a0a5ad4cacca1db1c8a731850f09db9f80ce",
    "0004_credentials": "93f0f7aa332472261ba892e7d51f5edba20e2db4e35eafecfc494a18cf434b6c",
    "0005_room_for_versions": "eaf3fbc5baa4ecc0b7acc8ec2569fd8a102f219a918770dbdba6069a4751d204",
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_migration_is_never_changed(name: str) -> None:
    checksums = {f"{one.version:04}_{one.name}": one.checksum for one in known_migrations()}

    assert checksums.get(name) == RELEASED[name]
