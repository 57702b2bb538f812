"""Secrets from files: `SYNCLINE_SECRET_KEYS_FILE` names the file that holds `secret_keys`.

`/proc`, process managers and crash reports show the environment. A file has permissions.
"""

import os
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path

from syncline.errors import SettingsError

SETTINGS = ("database_url", "listen_url", "secret_keys")
PREFIX, SUFFIX = "SYNCLINE_", "_FILE"
LARGEST_BYTES = 65_536


class ReadableByAll(UserWarning):
    """Every user of this machine can read a file with a secret."""


def secrets_from_files(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings whose variable names a file."""
    found = {}
    for setting in SETTINGS:
        variable = f"{PREFIX}{setting.upper()}"
        path = environment.get(variable + SUFFIX)
        if not path:
            continue
        if environment.get(variable):
            raise SettingsError(f"{variable} and {variable}{SUFFIX} are both set; keep one")
        found[setting] = _read(variable + SUFFIX, Path(path))
    return found


def _read(variable: str, path: Path) -> str:
    """Return the content of a file without its last newline; no message quotes it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                warnings.warn(
                    f"{variable}: every user of this machine can read {path}; run chmod o-r on it",
                    ReadableByAll,
                    stacklevel=4,
                )
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_BYTES:
        raise SettingsError(f"{variable}: {path} has more than {LARGEST_BYTES} bytes")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: {path} is not UTF-8") from None
    if not text or "\0" in text:
        raise SettingsError(f"{variable}: {path} {'has a NUL character' if text else 'is empty'}")
    return text
