"""Kinto, Mozilla's record store, on its own Postgres so that it survives a restart."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from integration.environments import program
from integration.servers import Server, free_port, running
from syncline.testing.database import TemporaryServer

RECORDS = "buckets/desk/collections/notes/records"
USER, PASSWORD = "ada", "pa55word-of-ada"
INI = """
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {port}

[app:main]
use = egg:kinto
kinto.includes = kinto.plugins.accounts
kinto.account_create_principals = system.Everyone
multiauth.policies = account
multiauth.policy.account.use = kinto.plugins.accounts.authentication.AccountsAuthenticationPolicy
kinto.userid_hmac_secret = for tests
kinto.storage_backend = kinto.core.storage.postgresql
kinto.storage_url = {database}
kinto.permission_backend = kinto.core.permission.postgresql
kinto.permission_url = {database}
kinto.cache_backend = kinto.core.cache.memory
kinto.retry_after_seconds = 17
"""


class Kinto:
    """A running Kinto."""

    def __init__(self, server: Server, postgres: TemporaryServer) -> None:
        self.server, self.postgres = server, postgres
        self._http = httpx2.Client(base_url=f"{server.url}/v1/", auth=(USER, PASSWORD), timeout=30)

    def set_up(self) -> None:
        account = {"data": {"password": PASSWORD}}
        httpx2.put(f"{self.server.url}/v1/accounts/{USER}", json=account, timeout=30)
        for path in ("buckets/desk", "buckets/desk/collections/notes"):
            self._http.put(path, json={"data": {}}).raise_for_status()

    def empty(self) -> None:
        self._http.delete("buckets/desk").raise_for_status()
        self.set_up()

    def put(self, number: int, text: str) -> None:
        record = {"data": {"text": text}}
        self._http.put(f"{RECORDS}/note-{number}", json=record).raise_for_status()

    def delete(self, number: int) -> None:
        self._http.delete(f"{RECORDS}/note-{number}").raise_for_status()

    def set_password(self, password: str) -> None:
        changed = self._http.put(f"accounts/{USER}", json={"data": {"password": password}})
        changed.raise_for_status()
        self._http.auth = httpx2.BasicAuth(USER, password)

    def held(self) -> dict[str, Any]:
        """Return every record by its id."""
        answer = self._http.get(RECORDS, params={"_limit": 10_000}).raise_for_status()
        return {record["id"]: record for record in answer.json()["data"]}

    def close(self) -> None:
        self._http.close()


@contextmanager
def running_kinto(folder: Path) -> Iterator[Kinto]:
    command = program("kinto", "kinto")
    port = free_port()
    ini = folder / "kinto.ini"
    with TemporaryServer() as postgres:
        ini.write_text(
            INI.format(port=port, database=postgres.create_database().replace("%", "%%"))
        )
        migrated = Server([command, "migrate", "--ini", ini], folder, port)
        migrated.run_to_its_end()
        with running(
            Server([command, "start", "--ini", ini, "--port", str(port)], folder, port)
        ) as server:
            kinto = Kinto(server, postgres)
            kinto.set_up()
            yield kinto
            kinto.close()
