"""Keys and database URLs come from files as well as from the environment."""

import os
import warnings
from pathlib import Path

import pytest

from support.commands import CommandLine
from syncline import Settings
from syncline.errors import SettingsError
from syncline.keyring import KeyRing, new_key
from syncline.settings.secret_files import SETTINGS, ReadableByAll

CANARY = "canary-of-a-secret"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def secret_file(folder: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


@pytest.mark.parametrize("newline", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_the_file_that_a_variable_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, newline: str
) -> None:
    key = new_key("k1")
    path = secret_file(folder, key + newline)
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(path))

    settings = Settings()

    assert settings.secret_keys is not None
    assert settings.secret_keys.get_secret_value() == key
    assert KeyRing.of(settings.secret_keys).first == "k1"
    assert key.partition(":")[2] not in repr(settings)


@pytest.mark.parametrize("name", ["database_url", "listen_url"])
def test_addresses_are_read_from_files_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = secret_file(folder, f"postgresql://app:{CANARY}@localhost/app\n")
    monkeypatch.setenv(f"SYNCLINE_{name.upper()}_FILE", str(path))

    settings = Settings()

    assert getattr(settings, name) == f"postgresql://app:{CANARY}@localhost/app"
    assert CANARY not in repr(settings)


def test_every_secret_setting_may_come_from_a_file() -> None:
    """A new setting that holds a secret or an address belongs into the list."""
    secrets = {name for name in Settings.model_fields if name.endswith(("_url", "_keys"))}

    assert secrets == set(SETTINGS)


def test_an_argument_counts_more_than_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_DATABASE_URL_FILE", str(secret_file(folder, "postgresql:///a")))
    folder.joinpath("syncline.toml").write_text('database_url = "postgresql:///toml"')

    assert Settings(database_url="postgresql:///b").database_url == "postgresql:///b"
    assert Settings().database_url == "postgresql:///a"


def refused(monkeypatch: pytest.MonkeyPatch, path: Path | str) -> str:
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(path))
    with pytest.raises(SettingsError) as error:
        Settings()
    line = str(error.value)
    assert line.startswith("SYNCLINE_SECRET_KEYS")
    assert "\n" not in line
    assert CANARY not in line
    return line


def test_a_file_that_is_missing_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "missing cannot be read: No such file" in refused(monkeypatch, folder / "missing")
    assert "Is a directory" in refused(monkeypatch, folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Permission denied" in refused(monkeypatch, secret_file(folder, CANARY, 0o000))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff" + CANARY.encode(), "is not UTF-8"),
        (CANARY.encode() + b"\0x", "has a NUL character"),
        (CANARY.encode() * 5000, "has more than 65536 bytes"),
    ],
)
def test_no_refusal_quotes_what_a_file_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    assert why in refused(monkeypatch, secret_file(folder, content))


def test_keys_that_are_no_keys_are_not_quoted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(secret_file(folder, f"k1:{CANARY}")))

    with pytest.raises(SettingsError) as error:
        KeyRing.of(Settings().secret_keys)

    assert CANARY not in str(error.value)


def test_a_secret_given_twice_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", CANARY)

    line = refused(monkeypatch, secret_file(folder, CANARY))

    assert line == "SYNCLINE_SECRET_KEYS and SYNCLINE_SECRET_KEYS_FILE are both set; keep one"


def test_a_file_that_everybody_may_read_warns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret_file(folder, CANARY, 0o644)
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(path))

    with pytest.warns(ReadableByAll, match="every user of this machine can read .*; run chmod o-r"):
        Settings()


def test_a_file_of_a_group_does_not_warn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs as another user reads its secrets by its group."""
    path = secret_file(folder, CANARY, 0o640)
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(path))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Settings()


def test_a_command_says_in_one_line_that_everybody_may_read_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, migrated_url: str
) -> None:
    path = secret_file(folder, new_key("k1"), 0o644)
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS_FILE", str(path))

    result = CommandLine(migrated_url, folder)("status")

    assert result.exit_code == 0
    assert result.stderr.splitlines()[0].startswith("syncline: SYNCLINE_SECRET_KEYS_FILE: every")
    assert "k1:" not in result.output
