"""Bodies and their limits, redirects, credentials, and exchanges that tools see."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.httpserver import Reply, Seen, http_server, json_reply
from syncline import Permanent, Transient
from syncline.http import (
    Authentication,
    Exchange,
    HttpClient,
    HttpEnvironment,
    Request,
    Response,
    Validators,
)
from syncline.http.body import PIECE, _decoder
from syncline.http.environment import Send

Local = Callable[..., HttpClient]


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body, wbits=-15)),
        ("identity", bytes),
    ],
    ids=["gzip", "deflate", "raw-deflate", "identity"],
)
async def test_bodies_are_decompressed(
    local: Local, encoding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = b'{"a": "' + b"x" * 200_000 + b'"}'
    reply = Reply(200, encode(body), {"content-encoding": encoding})
    async with http_server([reply]) as server, local(server.url) as http:
        assert (await http.get()).content == body


async def test_a_body_that_grows_when_decompressed_is_refused(local: Local) -> None:
    """A small gzip body that stands for a huge one is never held as a whole."""
    bomb = gzip.compress(b"\0" * 20_000_000)
    reply = Reply(200, bomb, {"content-encoding": "gzip"})
    async with (
        http_server([reply]) as server,
        local(server.url, limits={"max_response_bytes": 1_000_000}) as http,
    ):
        with pytest.raises(Permanent, match=r"more than 1000000 bytes \(http.max_response_bytes\)"):
            await http.get()


def test_no_piece_of_a_compressed_body_is_large() -> None:
    """A kilobyte may become a megabyte, so each small piece is counted before the next."""
    pieces = list(_decoder("gzip", Request("GET", "/")).feed(gzip.compress(bytes(10_000_000))))

    assert sum(map(len, pieces)) == 10_000_000
    assert max(map(len, pieces)) <= PIECE


@pytest.mark.parametrize("announces", [True, False])
async def test_a_body_over_the_limit_is_refused(local: Local, announces: bool) -> None:
    reply = Reply(200, b"x" * 1001, announces_length=announces)
    async with http_server([reply]) as server, local(server.url) as http:
        with pytest.raises(Permanent, match="more than"):
            await http.get(max_bytes=1000)


async def test_an_unrequested_encoding_is_transient(local: Local) -> None:
    reply = Reply(200, b"x", {"content-encoding": "br"})
    async with http_server([reply]) as server, local(server.url) as http:
        with pytest.raises(Transient, match="encoding 'br'"):
            await http.get()


async def test_at_most_five_redirects_are_followed(local: Local) -> None:
    def answer(seen: Seen) -> Reply:
        left = int(seen.path.strip("/"))
        return Reply(302, headers={"location": f"/{left - 1}"}) if left else Reply(200, b"there")

    async with http_server(answer) as server, local(server.url) as http:
        assert (await http.get("/5")).text == "there"
        with pytest.raises(Permanent, match="more than 5 times"):
            await http.get("/6")


@pytest.mark.parametrize(
    ("status", "method", "body"), [(301, "GET", b""), (303, "GET", b""), (307, "POST", b"a=1")]
)
async def test_a_redirect_keeps_or_drops_the_body(
    local: Local, status: int, method: str, body: bytes
) -> None:
    redirect = Reply(status, headers={"location": "/there"})
    async with http_server([redirect, Reply()]) as server, local(server.url) as http:
        await http.post("/here", data={"a": "1"})

    assert (server.seen[1].method, server.seen[1].body) == (method, body)


CREDENTIALS = {
    "token": {"token": "canary-token"},
    "oauth": {"access_token": "canary-token"},
    "basic": {"username": "me", "password": "canary-token"},
    "headers": {"headers": {"X-Api-Key": "canary-token"}},
    "query": {"query": {"key": "canary-token"}},
}
SENT = {
    "token": ("authorization", "Bearer canary-token"),
    "oauth": ("authorization", "Bearer canary-token"),
    "basic": ("authorization", "Basic bWU6Y2FuYXJ5LXRva2Vu"),
    "headers": ("x-api-key", "canary-token"),
}


@pytest.mark.parametrize("form", CREDENTIALS)
async def test_credentials_go_only_to_their_own_origin(local: Local, form: str) -> None:
    async with http_server(lambda _: Reply()) as other:
        redirect = Reply(302, headers={"location": f"{other.url}/elsewhere"})
        async with (
            http_server([redirect, Reply()]) as own,
            local(own.url, credentials=CREDENTIALS[form]) as http,
        ):
            await http.get("/x", headers={"x-own": "canary-token", "cookie": "canary-token"})
            await http.get(f"{other.url}/direct")
            await http.get("/y")

    for seen in (own.seen[0], own.seen[1]):
        if form == "query":
            assert seen.query == {"key": "canary-token"}
        else:
            name, value = SENT[form]
            assert seen.headers[name] == value
    assert len(other.seen) == 2
    for seen in other.seen:
        assert "canary" not in seen.target + str(seen.headers)
        assert "bWU6Y2FuYXJ5" not in str(seen.headers)


async def test_a_page_link_to_another_origin_gets_no_credentials(local: Local) -> None:
    async with http_server([json_reply([])]) as other:
        link = f'<{other.url}/2>; rel="next"'
        async with (
            http_server([json_reply([1], link=link)]) as own,
            local(own.url, credentials={"token": "canary"}) as http,
        ):
            pages = [page.json() async for page in http.pages_by_link("/1")]

    assert pages == [[1], []]
    assert "authorization" not in other.seen[0].headers


async def test_a_body_is_not_sent_to_another_origin(local: Local) -> None:
    async with http_server([]) as other:
        redirect = Reply(307, headers={"location": other.url})
        async with http_server([redirect]) as own, local(own.url) as http:
            with pytest.raises(Permanent, match="another origin"):
                await http.post(json={"secret": 1})

    assert other.seen == []


async def test_user_information_in_an_address_becomes_basic_authentication(local: Local) -> None:
    async with http_server(lambda _: Reply()) as server:
        address = server.url.replace("//", "//me:canary-token@")
        async with local(address) as http:
            await http.get("/a")
        async with local() as http:
            await http.get(f"{address}/b")

    assert [seen.headers["authorization"] for seen in server.seen] == [SENT["basic"][1]] * 2


async def test_credentials_are_not_sent_unencrypted() -> None:
    environment = HttpEnvironment(is_allowed=lambda _: True)
    async with (
        http_server([]) as server,
        HttpClient(environment, credentials={"token": "canary"}) as http,
    ):
        with pytest.raises(Permanent, match="is not https"):
            await http.get(server.url)

    assert server.seen == []


async def test_errors_have_no_secrets(local: Local) -> None:
    def answer(seen: Seen) -> Reply:
        return json_reply({"message": f"bad {seen.headers} {seen.target}"}, 404)

    async with http_server(answer) as server:
        secrets = {"headers": {"x-key": "canary/1"}, "query": {"key": "canary/2"}}
        async with local(server.url, credentials=secrets) as http:
            with pytest.raises(Permanent) as raised:
                await http.get("/canary%2F1", params={"sig": "canary-3"})

    assert server.seen[0].query == {"sig": "canary-3", "key": "canary/2"}
    assert "canary/" not in repr(raised.value)
    assert "canary%2F" not in repr(raised.value)
    assert raised.value.__cause__ is None


async def test_known_content_is_not_sent_again(local: Local) -> None:
    def answer(seen: Seen) -> Reply:
        version = {"etag": '"v1"', "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        known = seen.headers.get("if-none-match") == '"v1"'
        return Reply(304, headers=version) if known else Reply(200, b"news", version)

    async with http_server(answer) as server, local(server.url) as http:
        first = await http.get()
        kept = Validators.of(first).to_json()
        again = await http.get(validators=Validators.from_json(kept))

    assert kept == {"etag": '"v1"', "last_modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    assert (first.status_code, again.status_code) == (200, 304)
    assert server.seen[1].headers["if-modified-since"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert Validators.from_json(None) == Validators() == Validators.from_json({"etag": 3})


async def test_addresses_are_joined_to_the_base(local: Local) -> None:
    async with http_server(lambda _: Reply()) as server, local(f"{server.url}/api/v1") as http:
        for url in ("", "tickets", "/other", f"{server.url}/whole"):
            await http.get(url, params={"a": 1})

    targets = ["/api/v1?a=1", "/api/v1/tickets?a=1", "/other?a=1", "/whole?a=1"]
    assert [seen.target for seen in server.seen] == targets


async def test_a_tool_sees_every_exchange_and_may_answer_itself(local: Local) -> None:
    told: list[Exchange] = []

    async def replay(request: Request, send: Send) -> Response:
        return Response(200, content=b"played back")

    environment = HttpEnvironment(allow_private=True, intercept=replay, on_exchange=told.append)
    async with local(
        "http://localhost/x", environment=environment, credentials={"query": {"key": "canary"}}
    ) as http:
        answer = await http.get(params={"page": "2"})

    assert answer.text == "played back"
    assert [(one.method, one.url, one.status, one.received_bytes) for one in told] == [
        ("GET", "http://localhost/x?page=…&key=…", 200, 11)
    ]


async def test_a_recorder_sees_what_is_sent_and_passes_it_on(local: Local) -> None:
    seen: list[tuple[str, bytes]] = []

    async def record(request: Request, send: Send) -> Response:
        answer = await send(request)
        seen.append((str(request.url), answer.content))
        return answer

    environment = HttpEnvironment(allow_private=True, intercept=record)
    packed = Reply(
        200, gzip.compress(b"[1]"), {"content-encoding": "gzip", "content-type": "application/json"}
    )
    async with (
        http_server([packed]) as server,
        local(server.url, environment=environment) as http,
    ):
        assert (await http.get()).json() == [1]

    assert seen == [(server.url, b"[1]")]


async def test_cancelling_a_call_leaves_nothing_behind(local: Local) -> None:
    started = asyncio.Event()

    def answer(_: Seen) -> Reply:
        started.set()
        return Reply(200, b"x" * 1000, drip=0.01)

    async with http_server(answer) as server, local(server.url) as http:
        call = asyncio.create_task(http.get())
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_tls_verifies_the_name_that_was_asked_for(tmp_path: Path) -> None:
    """The address is pinned, and the certificate must still match the name."""
    server_side, client_side = certificate_for("api.example", tmp_path)

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    environment = HttpEnvironment(allow_private=True, resolve=here, ssl_context=client_side)
    async with (
        http_server(lambda _: Reply(), tls=server_side) as server,
        HttpClient(environment, authentication=Authentication({"x": "y"})) as http,
    ):
        await http.get(f"https://api.example:{server.port}/")
        with pytest.raises(Transient, match="certificate"):
            await http.get(f"https://other.example:{server.port}/")

    assert [seen.headers["host"] for seen in server.seen] == [f"api.example:{server.port}"]


def certificate_for(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server of that name and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    return server_side, ssl.create_default_context(cafile=str(pem))
