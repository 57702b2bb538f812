"""What is sealed opens for its owner with the right key, and for nobody else."""

import base64

import pytest

from syncline import Engine, Settings
from syncline.errors import SettingsError
from syncline.keyring import CannotOpen, KeyMissing, KeyRing, new_key

OLD, NEW = new_key("old"), new_key("new")
OWNER = ("acme", "connection-1", "credentials.sealed")
SECRET = b'{"token": "canary"}'


def test_what_is_sealed_opens_again() -> None:
    ring = KeyRing(NEW)

    assert ring.open(ring.seal(SECRET, OWNER), OWNER) == SECRET


def test_the_same_text_never_seals_alike() -> None:
    ring = KeyRing(NEW)

    assert len({ring.seal(SECRET, OWNER) for _ in range(100)}) == 100


def test_nothing_of_the_text_is_in_the_clear() -> None:
    assert b"canary" not in KeyRing(NEW).seal(SECRET, OWNER)


def test_the_first_key_seals_and_each_opens() -> None:
    sealed = KeyRing(OLD).seal(SECRET, OWNER)
    both = KeyRing(f"{NEW}, {OLD}")

    assert both.open(sealed, OWNER) == SECRET
    assert both.seal(SECRET, OWNER)[2:5] == b"new"
    with pytest.raises(KeyMissing, match="'old' is not in SYNCLINE_SECRET_KEYS"):
        KeyRing(NEW).open(sealed, OWNER)


@pytest.mark.parametrize("place", range(3))
def test_another_owner_gets_nothing(place: int) -> None:
    ring = KeyRing(NEW)
    other = [*OWNER]
    other[place] = "another"

    with pytest.raises(CannotOpen):
        ring.open(ring.seal(SECRET, OWNER), other)


def test_no_two_owners_are_bound_alike() -> None:
    ring = KeyRing(NEW)

    with pytest.raises(CannotOpen):
        ring.open(ring.seal(SECRET, ("a", "b|c")), ("a|b", "c"))


def test_a_flipped_bit_fails_closed() -> None:
    ring = KeyRing(NEW)
    sealed = ring.seal(SECRET, OWNER)

    for place in range(len(sealed)):
        for bit in (1, 128):
            spoilt = bytearray(sealed)
            spoilt[place] ^= bit
            with pytest.raises(CannotOpen):
                ring.open(bytes(spoilt), OWNER)


def test_a_text_cut_short_fails_closed() -> None:
    ring = KeyRing(NEW)
    sealed = ring.seal(SECRET, OWNER)

    for length in range(len(sealed)):
        with pytest.raises(CannotOpen):
            ring.open(sealed[:length], OWNER)


def test_a_key_of_the_same_name_that_is_another_does_not_open() -> None:
    with pytest.raises(CannotOpen, match="do not open with the key 'new'"):
        KeyRing(new_key("new")).open(KeyRing(NEW).seal(SECRET, OWNER), OWNER)


def test_without_a_key_nothing_is_sealed() -> None:
    with pytest.raises(SettingsError, match="stored only encrypted; set SYNCLINE_SECRET_KEYS"):
        KeyRing(None).seal(SECRET, OWNER)


@pytest.mark.parametrize(
    "text",
    [
        "canary",
        "k1:canary",
        "k 1:" + base64.b64encode(bytes(32)).decode(),
        ":" + base64.b64encode(bytes(32)).decode(),
        "k1:" + base64.b64encode(bytes(31)).decode(),
        "k1:" + base64.b64encode(b"canary" * 6).decode(),
        pytest.param(f"{NEW},{NEW}", id="the same twice"),
    ],
)
def test_a_bad_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^secret_keys: ") as refused:
        Engine(Settings(secret_keys=text))

    assert "canary" not in str(refused.value)
    assert text.partition(":")[2] not in str(refused.value) or ":" not in text


def test_keys_are_not_shown() -> None:
    key = NEW.partition(":")[2]

    assert key not in repr(KeyRing(NEW)) + repr(Settings(secret_keys=NEW))
    assert "12345678" not in repr(Settings(secret_keys=12345678))
