"""`syncline keys …` and `syncline explain`, on a real database."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from support.commands import CommandLine
from syncline import Engine, Settings


def test_a_key_is_shown_once_listed_and_revoked(syncline: CommandLine) -> None:
    made = syncline.json("keys", "create", "ann", "--expires-in-days", "90")
    tenants = syncline("keys", "create", "acme's", "--tenant", "acme")

    listed = syncline.json("keys", "list")
    shown = syncline("keys", "list").stdout

    assert made["key"].startswith("syncline_operator_")
    assert tenants.stdout.startswith("syncline_tenant_")
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


def days_until(time: str) -> float:
    return (datetime.fromisoformat(time) - datetime.now(UTC)) / timedelta(days=1)


def test_a_key_lasts_a_year_unless_it_says_otherwise(syncline: CommandLine) -> None:
    usual = syncline.json("keys", "create", "ann")
    chosen = syncline.json("keys", "create", "bob", "--expires-in-days", "90")
    endless = syncline.json("keys", "create", "cho", "--never")
    both = syncline("keys", "create", "dan", "--never", "--expires-in-days", "90")

    assert 364 < days_until(usual["expires_at"]) <= 365
    assert 89 < days_until(chosen["expires_at"]) <= 90
    assert endless["expires_at"] is None
    assert both.exit_code == 2


def test_a_key_has_the_scope_it_was_made_with(syncline: CommandLine) -> None:
    usual = syncline.json("keys", "create", "ann")
    reader = syncline.json("keys", "create", "bob", "--scope", "read")
    unknown = syncline("keys", "create", "cho", "--scope", "root")

    assert (usual["scope"], reader["scope"]) == ("admin", "read")
    assert unknown.exit_code == 2
    assert [one["scope"] for one in syncline.json("keys", "list")] == ["admin", "read"]


def test_the_list_shows_the_last_use_and_warns_of_keys_that_end_soon(
    syncline: CommandLine,
) -> None:
    made = syncline.json("keys", "create", "ann")
    syncline.json("keys", "create", "bob")
    syncline.sql(
        "UPDATE syncline.api_keys SET created_at = now() - interval '1 year',"
        " expires_at = now() + interval '13 days', last_used_at = '2025-02-03 04:05:06Z'"
        " WHERE name = 'ann'"
    )

    listed = syncline.json("keys", "list")
    shown = syncline("keys", "list")

    assert [one["status"] for one in listed] == ["expiring", "active"]
    assert [one["last_used_at"] for one in listed] == ["2025-02-03T04:05:06Z", None]
    assert "2025-02-03 04:05:06Z" in shown.stdout
    assert f"Key {made['id']} (ann) expires on " in shown.stderr
    assert "bob" not in shown.stderr


def test_wrong_use_of_keys_is_reported(syncline: CommandLine) -> None:
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
