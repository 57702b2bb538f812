"""`ETag`, 304 and gzip of answers to GETs."""

import gzip

import httpx2

from support.world import World
from syncline import SyncResult

Client = httpx2.AsyncClient
PLAIN = {"Accept-Encoding": "identity"}


async def test_an_unchanged_answer_is_304_without_a_body(world: World, local: Client) -> None:
    connection = await world.connection()
    for address in (f"/v1/connections/{connection.id}", "/v1/connections", "/v1/jobs?limit=3"):
        first = await local.get(address, headers=PLAIN)
        tag = first.headers["etag"]
        same = await local.get(address, headers={"If-None-Match": f'"other", {tag}'})
        weak = await local.get(address, headers={"If-None-Match": f"W/{tag}"})
        other = await local.get(address, headers={"If-None-Match": '"other"'})

        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert weak.status_code == 304
        assert other.json() == first.json()


async def test_a_run_changes_the_tag_but_not_what_if_match_compares(
    world: World, local: Client
) -> None:
    connection = await world.connection()
    address = f"/v1/connections/{connection.id}"
    before = await local.get(address)
    world.script(SyncResult(next_cursor={"page": 2}))
    await world.engine.trigger(connection.id)
    await world.run_due()

    after = await local.get(address, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()["version"] == before.json()["version"]
    tag = {"If-Match": before.headers["etag"]}
    edited = await local.patch(address, json={"interval_seconds": 600}, headers=tag)
    assert edited.status_code == 200
    again = await local.patch(address, json={"interval_seconds": 700}, headers=tag)
    assert again.status_code == 412


async def test_large_answers_are_compressed_if_the_client_takes_that(
    world: World, local: Client
) -> None:
    for _ in range(200):
        await world.connection()
    address = "/v1/connections?limit=200"
    plain = await local.get(address, headers=PLAIN)
    refused = await local.get(address, headers={"Accept-Encoding": "br, gzip;q=0"})
    async with local.stream("GET", address, headers={"Accept-Encoding": "gzip"}) as packed:
        raw = b"".join([chunk async for chunk in packed.aiter_raw()])

    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["content-length"] == str(len(raw))
    assert packed.headers["etag"] == f"W/{plain.headers['etag']}"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(raw) == plain.content
    assert len(raw) * 5 < len(plain.content)


async def test_small_answers_and_pages_are_left_as_they_are(world: World, local: Client) -> None:
    small = await local.get("/v1/budgets", headers={"Accept-Encoding": "gzip"})
    page = await local.get("/connections", headers={"Accept-Encoding": "gzip"})

    assert "content-encoding" not in small.headers
    assert "content-encoding" not in page.headers
    assert "etag" not in page.headers
