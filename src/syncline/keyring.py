"""The key ring: encrypts secrets with AES-256-GCM, and decrypts them.

A sealed text is a byte 1, the length of the key's id, the id, a random nonce of 96 bits, and the
ciphertext with its tag. The owner (tenant, connection, column) and the key's id are authenticated
too, so a text that was moved to another row does not open.
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Sequence

from pydantic import SecretStr

from syncline.errors import SettingsError

SETTING = "secret_keys"
VARIABLE = "SYNCLINE_SECRET_KEYS"
KEY_BYTES = 32
NONCE_BYTES = 12
FORMAT = b"\x01"
KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class CannotOpen(Exception):
    """A sealed text does not open; the message says why, but not its content."""


class KeyMissing(CannotOpen):
    """The key that a sealed text needs is not in the ring."""


class KeyRing:
    """Keys by id; the first one seals, all of them open."""

    def __init__(self, text: str | None) -> None:
        self._keys = _parse(text or "")

    @classmethod
    def of(cls, secret: SecretStr | None) -> "KeyRing":
        """Return the key ring of a setting, empty if there is none."""
        return cls(secret.get_secret_value() if secret else None)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        if not self._keys:
            raise SettingsError(
                f"credentials are stored only encrypted; set {VARIABLE} "
                "(`syncline secrets key` makes a key)"
            )
        return next(iter(self._keys))

    def seal(self, text: bytes, owner: Sequence[str]) -> bytes:
        """Encrypt text with the first key, bound to its owner."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, nonce = self.first, os.urandom(NONCE_BYTES)
        sealed = AESGCM(self._keys[key_id]).encrypt(nonce, text, _bound(owner, key_id))
        name = key_id.encode()
        return FORMAT + bytes([len(name)]) + name + nonce + sealed

    def open(self, sealed: bytes, owner: Sequence[str]) -> bytes:
        """Decrypt what was sealed for this owner, or raise `CannotOpen`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, nonce, ciphertext = _take_apart(sealed)
        if key_id not in self._keys:
            raise KeyMissing(f"the key {key_id!r} is not in {VARIABLE}")
        try:
            return AESGCM(self._keys[key_id]).decrypt(nonce, ciphertext, _bound(owner, key_id))
        except InvalidTag:
            raise CannotOpen(f"they do not open with the key {key_id!r}") from None


def new_key(key_id: str) -> str:
    """Return a new key in the format of the setting."""
    if not KEY_ID.fullmatch(key_id):
        raise ValueError(
            f"the key's id is {key_id!r}; it must be 1 to 64 characters of A-Z a-z 0-9 _ . -"
        )
    return f"{key_id}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"


def _parse(text: str) -> dict[str, bytes]:
    """Parse `id:base64,id:base64`; no message quotes a key."""
    keys: dict[str, bytes] = {}
    for place, entry in enumerate((part.strip() for part in text.split(",") if part.strip()), 1):
        key_id, colon, encoded = entry.partition(":")
        if not colon or not KEY_ID.fullmatch(key_id):
            raise SettingsError(
                f"{SETTING}: entry {place} must look like id:key, "
                "with an id of 1 to 64 characters of A-Z a-z 0-9 _ . -"
            )
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise SettingsError(
                f"{SETTING}: the key {key_id!r} must be {KEY_BYTES} bytes of base64"
            )
        if key_id in keys:
            raise SettingsError(f"{SETTING}: the id {key_id!r} is there twice")
        keys[key_id] = key
    return keys


def _take_apart(sealed: bytes) -> tuple[str, bytes, bytes]:
    name_ends = 2 + sealed[1] if len(sealed) > 1 else 2
    if sealed[:1] != FORMAT or len(sealed) < name_ends + NONCE_BYTES:
        raise CannotOpen("they have a format that this version does not know")
    key_id = sealed[2:name_ends].decode("ascii", errors="replace")
    return key_id, sealed[name_ends : name_ends + NONCE_BYTES], sealed[name_ends + NONCE_BYTES :]


def _bound(owner: Sequence[str], key_id: str) -> bytes:
    return json.dumps([*owner, key_id], ensure_ascii=False).encode()  # unambiguous
