"""`/v1/connections`, on a real database."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from support.world import World

NEW = {"tenant_id": "acme", "provider_slug": "github", "external_id": "a-1"}
Client = httpx2.AsyncClient


async def create(client: Client, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/connections", json={**NEW, **changes})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_connection_is_added_read_and_listed(local: Client) -> None:
    answer = await local.post(
        "/v1/connections", json={**NEW, "config": {"url": "x"}, "interval_seconds": 300}
    )

    added = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/connections/{added['id']}"
    read = await local.get(answer.headers["location"])
    assert read.json() == added
    assert answer.headers["etag"] == f'"{added["version"]}"'
    assert read.headers["etag"].startswith(f'"{added["version"]}.')  # and how it looks
    assert added["metadata"]["sync"]["interval_seconds"] == 300
    assert "credentials" not in added
    listed = (await local.get("/v1/connections")).json()
    assert listed == {"items": [added], "next_page": None}


async def test_pages_lead_through_everything(local: Client) -> None:
    ids = [(await create(local, external_id=f"a-{n}"))["id"] for n in range(5)]

    found: list[str] = []
    address: str | None = "/v1/connections?limit=2&prefix=a-"
    while address is not None:
        page = (await local.get(address)).json()
        found += [one["id"] for one in page["items"]]
        token = page["next_page"]
        address = f"/v1/connections?limit=2&prefix=a-&page={token}" if token else None

    assert found == ids


async def test_thousands_are_added_at_once(local: Client) -> None:
    existing = await create(local, external_id="a-7")
    many = [{**NEW, "external_id": f"a-{n}"} for n in range(3000)]

    answer = await local.post("/v1/connections/bulk", json={"connections": many})

    report = answer.json()
    assert answer.status_code == 200, answer.text
    assert (report["created"], report["existing"]) == (2999, 1)
    assert report["items"][7] == {"id": existing["id"], "is_new": False}
    assert len({one["id"] for one in report["items"]}) == 3000


async def test_one_bad_among_many_is_named_and_nothing_is_stored(local: Client) -> None:
    many = [{**NEW, "external_id": f"a-{n}"} for n in range(3)]
    many[1]["external_id"] = "nul\0"
    many[2]["interval_seconds"] = 5  # type: ignore[assignment]

    by_rule = await local.post("/v1/connections/bulk", json={"connections": many})
    by_engine = await local.post("/v1/connections/bulk", json={"connections": many[:2]})

    assert by_rule.status_code == by_engine.status_code == 422
    assert by_rule.json()["errors"][0]["field"] == "connections[2].interval_seconds"
    assert by_engine.json()["errors"][0]["field"] == "connections[1].external_id"
    assert (await local.get("/v1/connections")).json()["items"] == []


async def test_a_taken_key_is_a_conflict_that_names_the_connection(local: Client) -> None:
    existing = await create(local)

    answer = await local.post("/v1/connections", json=NEW)

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert existing["id"] in answer.json()["detail"]


async def test_interval_config_and_cursor_are_changed_together(local: Client) -> None:
    id_ = (await create(local, config={"a": 1}, interval_seconds=300))["id"]
    address = f"/v1/connections/{id_}"

    changed = await local.patch(
        address, json={"interval_seconds": 600, "config": {"b": 2}, "cursor": {"page": 3}}
    )
    back = await local.patch(address, json={"interval_seconds": None, "cursor": None})

    sync = changed.json()["metadata"]["sync"]
    assert (sync["interval_seconds"], sync["cursor"]) == (600, {"page": 3})
    assert changed.json()["config"] == back.json()["config"] == {"b": 2}
    assert back.json()["metadata"]["sync"].keys() == {"first_activated_at"}
    assert (await local.patch(address, json={})).status_code == 422


async def test_the_second_of_two_editors_is_refused(local: Client) -> None:
    id_ = (await create(local))["id"]
    address = f"/v1/connections/{id_}"
    seen = {"If-Match": (await local.get(address)).headers["etag"]}

    first = await local.patch(address, json={"config": {"by": "ann"}}, headers=seen)
    second = await local.patch(address, json={"config": {"by": "bob"}}, headers=seen)

    assert first.status_code == 200
    assert second.status_code == 412
    assert second.json()["type"] == "/docs#problem-changed"
    assert (await local.get(address)).json()["config"] == {"by": "ann"}
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        refused = await local.request(method, address + path, headers=seen)
        assert refused.status_code == 412, path
    fresh = {"If-Match": first.headers["etag"]}
    assert (await local.delete(address, headers=fresh)).status_code == 204


async def test_a_run_does_not_count_as_an_edit(world: World, local: Client) -> None:
    id_ = (await create(local))["id"]
    before = await local.get(f"/v1/connections/{id_}")
    await world.tick()
    await world.run_one()

    assert (await local.get(f"/v1/connections/{id_}")).json()["version"] == before.json()["version"]
    read = {"If-Match": before.headers["etag"]}
    paused = await local.post(f"/v1/connections/{id_}/pause", headers=read)
    assert paused.status_code == 200


async def test_pause_says_by_whom_and_resume_undoes_it(operator: Client) -> None:
    id_ = (await create(operator))["id"]

    paused = await operator.post(f"/v1/connections/{id_}/pause", json={"reason": "moving house"})
    explained = (await operator.get(f"/v1/connections/{id_}/explanation")).json()
    resumed = await operator.post(f"/v1/connections/{id_}/resume")

    assert paused.json()["status"] == "paused"
    assert explained["reason"] == "paused"
    assert "moving house, by ann" in explained["summary"]
    assert resumed.json()["status"] == "active"


async def test_sync_now_of_either_kind(local: Client) -> None:
    id_ = (await create(local))["id"]

    plain = await local.post(f"/v1/connections/{id_}/sync")
    full = await local.post(f"/v1/connections/{id_}/sync", json={"job_type": "full", "priority": 3})
    await local.post(f"/v1/connections/{id_}/pause")
    refused = await local.post(f"/v1/connections/{id_}/sync")

    assert (plain.status_code, plain.json()["job_type"]) == (202, "incremental")
    assert (full.json()["job_type"], full.json()["priority"]) == ("full", 3)
    assert refused.status_code == 409
    assert "is paused, not active" in refused.json()["detail"]


async def test_delete_removes_it(local: Client) -> None:
    id_ = (await create(local))["id"]

    assert (await local.delete(f"/v1/connections/{id_}")).status_code == 204
    assert (await local.get(f"/v1/connections/{id_}")).status_code == 404
    assert (await local.delete(f"/v1/connections/{id_}")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/connections", "/v1/connections/bulk"])
async def test_a_repeated_request_has_its_effect_once(local: Client, path: str) -> None:
    body = NEW if path.endswith("connections") else {"connections": [NEW]}
    headers = {"Idempotency-Key": "once"}

    first = await local.post(path, json=body, headers=headers)
    second = await local.post(path, json=body, headers=headers)

    assert first.status_code == second.status_code
    assert first.json() == second.json()
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len((await local.get("/v1/connections")).json()["items"]) == 1


async def test_repeats_at_the_same_instant_have_one_effect(local: Client) -> None:
    headers = {"Idempotency-Key": "once"}

    answers = await asyncio.gather(
        *(local.post("/v1/connections", json=NEW, headers=headers) for _ in range(8))
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_what_failed_may_be_tried_again_with_the_same_key(local: Client) -> None:
    existing = await create(local)
    headers = {"Idempotency-Key": "again"}

    refused = await local.post("/v1/connections", json=NEW, headers=headers)
    await local.delete(f"/v1/connections/{existing['id']}")
    done = await local.post("/v1/connections", json=NEW, headers=headers)

    assert (refused.status_code, done.status_code) == (409, 201)


async def test_a_key_that_was_used_for_another_request_is_refused(local: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    await local.post("/v1/connections", json=NEW, headers=headers)

    other = {**NEW, "external_id": "b-1"}
    refused = await local.post("/v1/connections", json=other, headers=headers)

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "Idempotency-Key"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"interval_seconds": 59}, "interval_seconds"),
    ({"interval_seconds": 86_401}, "interval_seconds"),
    ({"interval_seconds": "300"}, "interval_seconds"),
    ({"interval_seconds": 300.5}, "interval_seconds"),
    ({"interval_seconds": True}, "interval_seconds"),
    ({"external_id": ""}, "external_id"),
    ({"external_id": "ü" * 1000}, "external_id"),
    ({"external_id": "a\0"}, "external_id"),
    ({"external_id": 7}, "external_id"),
    ({"tenant_id": "x" * 256}, "tenant_id"),
    ({"tenant_id": None}, "tenant_id"),
    ({"provider_slug": "p" * 101}, "provider_slug"),
    ({"config": []}, "config"),
    ({"config": {"a": "\0"}}, "config"),
    ({"config": {"a": "x" * 300_000}}, "config"),
    ({"intervall": 300}, "intervall"),
]


async def test_a_bad_field_is_named_with_its_rule(local: Client) -> None:
    for changes, field in BAD:
        answer = await local.post("/v1/connections", json={**NEW, **changes})

        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (422, 422), changes
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["errors"][0]["field"] == field
        assert problem["errors"][0]["rule"], field
        # The name that Python has for the status depends on its version.
        assert problem["title"] in ("Unprocessable Content", "Unprocessable Entity")


async def test_a_bad_query_is_refused(local: Client) -> None:
    for query in (
        *("limit=0", "limit=501", "limit=x", "order=name", "status=asleep", "page=nonsense"),
        *("tenant=", "prefix=%00", "nonsense=1", "page=" + "x" * 5000),
    ):
        answer = await local.get(f"/v1/connections?{query}")

        assert answer.status_code == 422, query
        assert answer.json()["errors"][0]["field"] == query.partition("=")[0]
    # What is no UTF-8 is read as characters that stand for nothing.
    assert (await local.get("/v1/connections?provider=%ED%A0%80")).status_code == 200


async def test_unknown_ids_and_bad_ones(local: Client) -> None:
    assert (await local.get(f"/v1/connections/{uuid4()}")).status_code == 404
    assert (await local.get("/v1/connections/7")).status_code == 422
    assert (await local.post(f"/v1/connections/{uuid4()}/sync")).status_code == 404


async def test_what_people_stored_by_hand_is_shown(world: World, local: Client) -> None:
    odd = await world.connection(metadata=[1, 2])
    await world.sql(
        "UPDATE {schema}.connections SET config = '[1e400, null]', status_reason = '7'"
        " WHERE id = $1",
        odd.id,
    )

    for address in ("/v1/connections", f"/v1/connections/{odd.id}"):
        assert (await local.get(address)).status_code == 200, address
    assert (await local.get(f"/v1/connections/{odd.id}/explanation")).status_code == 200


async def test_a_reason_that_no_database_can_keep_is_refused(local: Client) -> None:
    id_ = (await create(local))["id"]

    for reason in ("a\0b", "\ud800"):
        refused = await local.post(
            f"/v1/connections/{id_}/pause",
            content=json.dumps({"reason": reason}),
            headers={"content-type": "application/json"},
        )
        assert refused.status_code == 422
