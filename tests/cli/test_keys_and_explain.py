"""`syncline keys …` and `syncline explain`, on a real database."""

import asyncio
from uuid import uuid4

from support.commands import CommandLine
from syncline import Engine, Settings


def test_a_key_is_shown_once_listed_and_revoked(syncline: CommandLine) -> None:
    made = syncline.json("keys", "create", "ann", "--expires-in-days", "90")
    tenants = syncline("keys", "create", "acme's", "--tenant", "acme")

    listed = syncline.json("keys", "list")
    shown = syncline("keys", "list").stdout

    assert made["key"].startswith("slop_")
    assert tenants.stdout.startswith("slte_")
    assert [one["name"] for one in listed] == ["ann", "acme's"]
    assert listed[1]["tenant_id"] == "acme"
    assert all("key" not in one and "digest" not in one for one in listed)
    assert made["key"] not in shown
    revoked = syncline("keys", "revoke", made["id"])
    assert revoked.stdout == f"Revoked key {made['id']} (ann).\n"
    assert syncline.json("keys", "list")[0]["revoked_at"] is not None


def test_the_key_opens_what_it_should(syncline: CommandLine) -> None:
    made = syncline.json("keys", "create", "ann")

    async def authenticate() -> str | None:
        async with Engine(Settings(database_url=syncline.url)) as engine:
            found = await engine.access.authenticate(made["key"])
            return found.name if found else None

    assert asyncio.run(authenticate()) == "ann"
    syncline("keys", "revoke", made["id"])
    assert asyncio.run(authenticate()) is None


def test_wrong_use_of_keys_is_told(syncline: CommandLine) -> None:
    unknown = syncline("keys", "revoke", str(uuid4()))
    no_id = syncline("keys", "revoke", "ann")
    no_name = syncline("keys", "create", "")

    assert (unknown.exit_code, no_id.exit_code, no_name.exit_code) == (1, 2, 1)
    assert "there is no key" in unknown.stderr
    assert "`syncline keys list`" in no_id.stderr
    assert "name is ''" in no_name.stderr


def test_explain_says_why_in_words_and_for_programs(syncline: CommandLine) -> None:
    id_ = syncline.add()
    syncline("connections", "pause", id_, "--reason", "moving house")

    words = syncline("explain", id_)
    found = syncline.json("explain", id_)

    assert words.stdout.startswith("It was paused (moving house, since ")
    assert "Reason         paused" in words.stdout
    assert found["reason"] == "paused"
    assert found["evidence"]["connection_id"] == id_
    assert syncline("explain", str(uuid4())).exit_code == 1


def test_connections_are_listed_by_prefix_and_staleness(syncline: CommandLine) -> None:
    first, second, other = (syncline.add(name) for name in ("a-1", "a-2", "b-1"))
    syncline.sql(
        "UPDATE syncline.connections SET last_finished_at = now() - interval '1 h' WHERE id = $1",
        first,
    )
    syncline.sql("UPDATE syncline.connections SET last_finished_at = now() WHERE id = $1", second)

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in syncline.json("connections", "list", *options)]

    assert ids("--prefix", "a-") == [first, second]
    assert ids("--order", "staleness") == [other, first, second]
