"""A remote database is reached over verified TLS, unless the URL says otherwise."""

import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.commands import CommandLine
from support.tls_database import TlsProxy, tls_proxy, write_certificate
from syncline import Engine, Settings
from syncline.errors import DatabaseTlsError
from syncline.store.connect import is_local, tls_for
from syncline.store.listener import Listener

HOST = "db.example"
LOCAL = [
    "postgresql:///app", "postgresql://app@/app", "postgresql://localhost/app",
    "postgresql://LOCALHOST:5432/app", "postgresql://app:p@127.0.0.1/app",
    "postgresql://127.1.2.3:6432/app", "postgresql://[::1]/app", "postgresql://[::1]:5432/app",
    "postgresql://%2Fvar%2Frun%2Fpostgresql/app", "postgresql:///app?host=/var/run/postgresql",
    "postgresql:///app?host=localhost", "postgresql://localhost,127.0.0.1:5433/app",
    "postgresql:///app?host=/tmp/a,/tmp/b",
]  # fmt: skip
REMOTE = [
    "postgresql://db/app", "postgresql://app:p@db.example:5432/app", "postgresql://10.0.0.1/app",
    "postgresql://192.168.1.1/app", "postgresql://[2001:db8::1]:5432/app", "postgres://db/app",
    "postgresql:///app?host=db", "postgresql://localhost,db.example/app",
    "postgresql://127.0.0.1.example/app", "postgresql://localhost.example/app",
    "postgresql://localhost@db.example/app", "postgresql://a@db.example,localhost/app",
    "postgresql://0.0.0.0/app", "postgresql:///app?service=prod", "postgresql://2130706433/app",
]  # fmt: skip


@pytest.mark.parametrize("url", LOCAL)
def test_this_machine_needs_no_tls(url: str) -> None:
    assert is_local(url, {})
    assert tls_for(url, {}) is None


@pytest.mark.parametrize("url", REMOTE)
def test_any_other_machine_is_verified(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    assert not is_local(url, {})
    context = tls_for(url, {})
    assert isinstance(context, ssl.SSLContext)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_the_driver_takes_its_host_from_the_environment() -> None:
    assert not is_local("postgresql:///app", {"PGHOST": "db.example"})
    assert is_local("postgresql:///app", {"PGHOST": "/run/postgresql"})
    assert is_local("postgresql://localhost/app", {"PGHOST": "db.example"})


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_a_mode_that_is_named_is_obeyed(mode: str) -> None:
    assert tls_for(f"postgresql://{HOST}/app?sslmode={mode}", {}) is None
    assert tls_for(f"postgresql://{HOST}/app", {"PGSSLMODE": mode}) is None


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return write_certificate(tmp_path, HOST)


@pytest.fixture(autouse=True)
def resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the names of this module lead to loopback, where the proxy stands."""
    usual = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        is_ours = isinstance(host, str) and host.endswith(".example")
        return usual("127.0.0.1" if is_ours else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setitem(sys.modules, "uvloop", None)  # which resolves names by itself
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGHOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy(migrated_url: str, certificate: tuple[Path, Path]) -> Iterator[TlsProxy]:
    with tls_proxy(migrated_url, certificate) as proxy:
        yield proxy


@pytest.fixture
def plain(migrated_url: str) -> Iterator[TlsProxy]:
    with tls_proxy(migrated_url, None) as proxy:
        yield proxy


def remote(proxy: TlsProxy, local_url: str, query: str = "", host: str = HOST) -> str:
    parts = urlsplit(local_url)
    return f"postgresql://{parts.username}@{host}:{proxy.port}{parts.path}?{query}"


async def open_engine(url: str) -> None:
    async with Engine(Settings(database_url=url)) as engine:
        await engine.stats.overview()


async def test_a_certificate_of_a_named_authority_is_accepted(
    proxy: TlsProxy, migrated_url: str, certificate: tuple[Path, Path]
) -> None:
    await open_engine(remote(proxy, migrated_url, f"sslrootcert={certificate[0]}"))

    assert (proxy.encrypted > 0, proxy.plain) == (True, 0)


async def test_an_unknown_certificate_is_refused_in_one_line(
    proxy: TlsProxy, migrated_url: str
) -> None:
    with pytest.raises(DatabaseTlsError) as refused:
        await open_engine(remote(proxy, migrated_url))

    said = str(refused.value)
    assert "self-signed certificate" in said.replace("self signed", "self-signed")
    assert "sslrootcert=FILE" in said
    assert "sslmode=require" in said
    assert proxy.plain == 0


async def test_a_certificate_of_another_host_is_refused(
    proxy: TlsProxy, migrated_url: str, certificate: tuple[Path, Path]
) -> None:
    url = remote(proxy, migrated_url, f"sslrootcert={certificate[0]}", host="other.example")

    with pytest.raises(DatabaseTlsError, match="not valid for"):
        await open_engine(url)


async def test_a_remote_database_without_tls_is_refused(plain: TlsProxy, migrated_url: str) -> None:
    """Whoever stands between could say so in its name."""
    with pytest.raises(DatabaseTlsError, match=r"offers no TLS.*add sslmode=disable"):
        await open_engine(remote(plain, migrated_url))

    assert plain.plain == 0


async def test_a_missing_authority_is_named(proxy: TlsProxy, migrated_url: str) -> None:
    with pytest.raises(DatabaseTlsError, match="sslrootcert names /nowhere, which is not a file"):
        await open_engine(remote(proxy, migrated_url, "sslrootcert=/nowhere"))


@pytest.mark.parametrize("mode", ["require", "disable"])
async def test_the_way_out_that_the_message_names_works(
    proxy: TlsProxy, migrated_url: str, mode: str
) -> None:
    await open_engine(remote(proxy, migrated_url, f"sslmode={mode}"))

    assert (proxy.encrypted > 0, proxy.plain > 0) == (mode == "require", mode == "disable")


async def test_the_listener_is_verified_too(proxy: TlsProxy, migrated_url: str) -> None:
    listener = Listener(remote(proxy, migrated_url), "heard", lambda _: None, {})

    with pytest.raises(DatabaseTlsError, match="cannot be verified"):
        await listener.keep_listening()


@pytest.mark.parametrize("command", ["migrate", "doctor", "status"])
def test_every_command_says_it_in_one_line(
    proxy: TlsProxy, migrated_url: str, tmp_path: Path, command: str
) -> None:
    syncline = CommandLine(remote(proxy, migrated_url), tmp_path)

    result = syncline(command)

    assert result.exit_code == 1
    assert result.stderr.startswith("syncline: the certificate of the database cannot be verified")
    assert result.stderr.count("\n") == 1
