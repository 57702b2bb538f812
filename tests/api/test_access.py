"""Who is let in: keys, sessions, strangers, other sites."""

from datetime import timedelta
from http.cookies import SimpleCookie

import asyncpg
import httpx2
import pytest

from support.fakes import IllEngine
from support.http import client_of
from support.world import World
from syncline import Settings
from syncline.api.auth import COOKIE, Principal
from syncline.redaction import mask_secrets
from syncline.settings import ApiSettings

Client = httpx2.AsyncClient
OPEN = ("/healthz", "/readyz", "/docs", "/openapi.json", "/login")
CLOSED = ("/metrics", "/v1/connections", "/v1/jobs", "/v1/signals", "/v1/providers", "/v1/stats")


async def test_on_the_machine_itself_no_key_is_needed(local: Client) -> None:
    for path in (*OPEN, *CLOSED, "/"):
        assert (await local.get(path)).status_code == 200, path


async def test_from_the_first_key_on_everybody_needs_one(world: World, local: Client) -> None:
    key, _ = await world.engine.access.create_key("ann")

    for path in OPEN:
        assert (await local.get(path)).status_code == 200, path
    for path in CLOSED:
        refused = await local.get(path)
        assert refused.status_code == 401, path
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.headers["content-type"] == "application/problem+json"
    await world.engine.access.revoke_key(key.id)
    async with client_of(world.engine) as newcomer:
        refused = await newcomer.get("/v1/stats")
        assert refused.status_code == 401
        assert (
            refused.json()["detail"] == "send a key in the header `Authorization`, as `Bearer KEY`"
        )


@pytest.mark.engine(api={"host": "0.0.0.0"})
async def test_where_others_can_reach_it_a_key_is_needed(world: World, local: Client) -> None:
    for path in CLOSED:
        assert (await local.get(path)).status_code == 401, path
    assert (await local.get("/", follow_redirects=False)).headers["location"] == "/login?next=/"


async def test_a_revoked_key_is_refused_at_once(world: World, local: Client) -> None:
    key, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine, secret) as client:
        assert (await client.get("/v1/stats")).status_code == 200

        await world.engine.access.revoke_key(key.id)

        assert (await client.get("/v1/stats")).status_code == 401


async def test_a_key_expires_on_time(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann", expires_in=timedelta(hours=1))
    async with client_of(world.engine, secret) as client:
        world.clock.advance(seconds=3599)
        assert (await client.get("/v1/stats")).status_code == 200
        world.clock.advance(seconds=1)
        assert (await client.get("/v1/stats")).status_code == 401


async def test_a_key_that_is_nearly_right_is_refused(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    flipped = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    for wrong in (flipped, secret[:-1], secret + "0", "", "x", "ä", secret.upper()):
        assert await world.engine.access.authenticate(wrong) is None, wrong
    async with client_of(world.engine) as client:
        for header in ("", "Bearer", f"Basic {secret}", f"Bearer {flipped}", secret):
            answer = await client.get("/v1/stats", headers={"Authorization": header})
            assert answer.status_code == 401, header


async def test_the_key_itself_is_stored_nowhere(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    session = await world.engine.access.sign_in(secret)

    session_rows = await world.sql("SELECT * FROM {schema}.api_sessions")
    rows = await world.sql("SELECT * FROM {schema}.api_keys")

    assert len(bytes.fromhex(secret.rpartition("_")[2])) == 32  # 256 random bits
    shown = str([tuple(row) for row in [*rows, *session_rows]])
    assert secret.rpartition("_")[2] not in shown
    assert str(session) not in shown


def test_a_key_in_a_text_is_masked() -> None:
    for kind in ("slop", "slte", "syncline_operator", "syncline_tenant"):
        masked = mask_secrets(f"refused {kind}_{'a' * 12}_{'b' * 64} today")

        assert masked == f"refused {kind}_{'a' * 12}_*** today"


async def test_a_lifetime_out_of_bounds_is_refused(world: World) -> None:
    for expires_in in (timedelta(), timedelta(days=4000), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="expires_in"):
            await world.engine.access.create_key("ann", expires_in=expires_in)


async def test_a_tenants_key_sees_no_metrics_and_no_workers(acme: Client) -> None:
    assert (await acme.get("/metrics")).status_code == 403
    assert (await acme.get("/v1/workers")).status_code == 403
    assert (await acme.get("/")).status_code == 403


async def test_requests_through_a_proxy_need_a_key(local: Client) -> None:
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        refused = await local.get("/v1/stats", headers={header: "203.0.113.7"})
        assert refused.status_code == 403, header


async def test_no_other_site_changes_anything(local: Client) -> None:
    address = "/v1/jobs/00000000-0000-0000-0000-000000000001/cancel"

    own: list[dict[str, str]] = [
        {},
        {"Origin": "http://127.0.0.1:8080"},
        {"Sec-Fetch-Site": "same-origin"},
    ]
    foreign = [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9090"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ]
    for headers in own:
        assert (await local.post(address, headers=headers)).status_code == 404, headers
    for headers in foreign:
        assert (await local.post(address, headers=headers)).status_code == 403, headers


async def sign_in(client: Client, secret: str) -> httpx2.Response:
    return await client.post("/login", data={"key": secret, "next": "/v1/stats"})


async def test_a_browser_signs_in_and_out(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine) as browser:
        led = await browser.get("/")
        assert (led.status_code, led.headers["location"]) == (303, "/login?next=/")
        assert (await sign_in(browser, "wrong")).status_code == 401

        entered = await sign_in(browser, secret)

        cookie = SimpleCookie(entered.headers["set-cookie"])[COOKIE]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
        assert entered.headers["location"] == "/v1/stats"
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/v1/stats")).status_code == 200
        token = Principal("ann", session=cookie.value).csrf_token
        assert (await browser.post("/logout")).status_code == 403
        left = await browser.post("/logout", data={"csrf": token})
        assert left.headers["location"] == "/login"
        browser.cookies.set(COOKIE, cookie.value)  # kept by somebody
        assert (await browser.get("/v1/stats")).status_code == 401


async def test_a_session_needs_its_token_to_change_anything(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    connection = await world.connection()
    async with client_of(world.engine) as browser:
        await sign_in(browser, secret)
        address = f"/v1/connections/{connection.id}/pause"
        token = Principal("ann", session=browser.cookies[COOKIE]).csrf_token

        without = await browser.post(address)
        wrong = await browser.post(address, headers={"X-CSRF-Token": "0" * 64})
        right = await browser.post(address, headers={"X-CSRF-Token": token})

    assert (without.status_code, wrong.status_code, right.status_code) == (403, 403, 200)


async def test_a_session_ends_with_its_key_and_with_time(world: World) -> None:
    key, secret = await world.engine.access.create_key("ann")
    _, short = await world.engine.access.create_key("bob", expires_in=timedelta(hours=13))
    async with client_of(world.engine) as first, client_of(world.engine) as second:
        await sign_in(first, secret)
        world.clock.advance(seconds=12 * 3600)
        assert (await first.get("/v1/stats")).status_code == 401
        await sign_in(second, secret)
        await sign_in(first, short)
        assert (await first.get("/v1/stats")).status_code == 200
        world.clock.advance(seconds=3600)
        assert (await first.get("/v1/stats")).status_code == 401
        assert (await second.get("/v1/stats")).status_code == 200
        await world.engine.access.revoke_key(key.id)
        assert (await second.get("/v1/stats")).status_code == 401


async def test_signing_in_leads_nowhere_else(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine) as browser:
        for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/a\nb"):
            answer = await browser.post("/login", data={"key": secret, "next": target})

            assert answer.headers["location"] == "/", target


async def test_while_it_drains_it_is_not_ready(world: World, local: Client) -> None:
    world.engine.stop()

    answer = await local.get("/readyz")

    assert (answer.status_code, answer.json()) == (503, {"status": "draining"})


async def test_strangers_do_not_see_why_it_is_not_ready(database_url: str) -> None:
    settings = Settings(database_url=database_url, api=ApiSettings(host="0.0.0.0"))
    illness = "password authentication failed for user bob"
    async with IllEngine(settings, illness) as engine, client_of(engine) as stranger:
        answer = await stranger.get("/readyz")

    assert answer.json() == {"status": "not ready", "ill": ["database"]}


async def test_a_malformed_digest_cannot_be_stored(world: World) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await world.sql(
            "INSERT INTO {schema}.api_keys (id, name, prefix, digest, created_at)"
            " VALUES (gen_random_uuid(), 'x', 'y', 'short', now())"
        )
