"""`matrix` against Synapse: gaps, redactions, rate limits, a restart, and killed workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from integration.environments import program
from integration.scene import Scene
from integration.servers import Server, Toll, free_port, running
from syncline import RateLimited, Unauthorized
from syncline.connectors.matrix import Matrix
from syncline.testing.trial import TrialPage, prepare_trial, take_pages, trial_connection

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

API = "/_matrix/client/v3"
MORE = """
enable_registration: true
enable_registration_without_verification: true
trusted_key_servers: []
suppress_key_server_warning: true
rc_message: {{per_second: 1000, burst_count: 1000}}
rc_registration: {{per_second: 1000, burst_count: 1000}}
rc_login: {{address: {{per_second: 0.1, burst_count: 3}}}}
listeners:
  - port: {port}
    bind_addresses: ["127.0.0.1"]
    type: http
    tls: false
    resources: [{{names: [client]}}]
"""


class Synapse:
    """A running Synapse with one account."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._http = httpx2.Client(base_url=server.url, timeout=30)
        self.token = ""
        self._count = 0

    def register(self, name: str) -> None:
        account = {"username": name, "password": "pa55word", "auth": {"type": "m.login.dummy"}}
        self.token = self._post("register", account)["access_token"]
        self._http.headers["authorization"] = f"Bearer {self.token}"

    def create_room(self) -> str:
        return str(self._post("createRoom", {"preset": "private_chat"})["room_id"])

    def send(self, room: str, *bodies: str) -> list[str]:
        return [
            self._put(room, "send/m.room.message", {"msgtype": "m.text", "body": body})
            for body in bodies
        ]

    def redact(self, room: str, event: str) -> str:
        return self._put(room, f"redact/{event}", {"reason": "spam"})

    def log_out(self) -> None:
        self._post("logout", {})

    def held(self, room: str) -> set[str]:
        """Return the ids of all events of a room."""
        answer = self._http.get(f"{API}/rooms/{room}/messages", params={"dir": "b", "limit": 1000})
        return {event["event_id"] for event in answer.raise_for_status().json()["chunk"]}

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, body: Any) -> Any:
        return self._http.post(f"{API}/{path}", json=body).raise_for_status().json()

    def _put(self, room: str, path: str, body: Any) -> str:
        self._count += 1
        answer = self._http.put(f"{API}/rooms/{room}/{path}/t{self._count}", json=body)
        return str(answer.raise_for_status().json()["event_id"])


@pytest.fixture(scope="module")
def running_synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("synapse"), free_port()
    python = program("synapse", "python")
    command: list[str | Path] = [python, "-m", "synapse.app.homeserver", "-c", "base.yaml"]
    names = ["--server-name", "localhost", "--report-stats=no"]
    generate = [*command, *names, "--generate-config", "--data-directory", folder]
    Server(generate, folder, port).run_to_its_end()
    (folder / "more.yaml").write_text(MORE.format(port=port))
    with running(Server([*command, "-c", "more.yaml"], folder, port)) as server:
        yield server


@pytest.fixture
def synapse(running_synapse: Server, request: pytest.FixtureRequest) -> Iterator[Synapse]:
    synapse = Synapse(running_synapse)
    try:
        synapse.register(request.node.name[:30].replace("_", "-"))
        yield synapse
    finally:
        synapse.close()


async def run(synapse: Synapse, cursor: Any = None) -> list[TrialPage]:
    config = {"base_url": synapse.server.url, "page_size": 5}
    credentials = {"access_token": synapse.token}
    return await take_pages(prepare_trial(Matrix()), config, credentials=credentials, cursor=cursor)


def ids(pages: list[TrialPage]) -> list[str]:
    return [signal.payload["event_id"] for page in pages for signal in page.signals]


async def test_full_then_a_gap_and_a_redaction_then_nothing(synapse: Synapse) -> None:
    room = synapse.create_room()
    synapse.send(room, *(f"message {number}" for number in range(20)))
    whole = await run(synapse)
    before = synapse.held(room)
    sent = synapse.send(room, *(f"later {number}" for number in range(12)))
    redaction = synapse.redact(room, sent[0])

    changes = await run(synapse, whole[-1].next_cursor)
    [nothing] = await run(synapse, changes[-1].next_cursor)

    assert sorted(ids(whole)) == sorted(before)
    assert sorted(ids(changes)) == sorted([*sent, redaction])
    assert len(changes) > 1
    assert nothing.signals == ()


async def test_a_token_that_was_logged_out_is_unauthorized(synapse: Synapse) -> None:
    synapse.log_out()

    with pytest.raises(Unauthorized):
        await run(synapse)


async def test_its_rate_limits_say_how_long_to_wait(synapse: Synapse) -> None:
    """Synapse limits logins, not syncs, so the client gets its 429 there."""
    matrix = prepare_trial(Matrix())
    connection = trial_connection(matrix, {}, {"access_token": synapse.token})
    login = {"type": "m.login.password", "user": "nobody", "password": "wrong"}

    async def log_in_for_ever() -> None:
        async with matrix.http(connection, base_url=synapse.server.url) as http:
            while True:
                await http.post(f"{API}/login", json=login, accept={403})

    with pytest.raises(RateLimited) as raised:
        await log_in_for_ever()

    assert raised.value.retry_after_seconds is not None
    assert 0 < raised.value.retry_after_seconds <= 60


async def test_workers_killed_in_the_middle_lose_and_double_nothing(
    synapse: Synapse, scene: Scene
) -> None:
    room = synapse.create_room()
    synapse.send(room, *(f"message {number}" for number in range(60)))
    total = len(synapse.held(room))
    async with Toll(synapse.server.port, seconds=0.2) as toll:
        config = {"base_url": toll.url, "page_size": 5}
        await scene.connect("matrix", config, {"access_token": synapse.token})
        await scene.sync_killed(total)
        synapse.send(room, "one more")
        await scene.sync()

    found = [payload["event_id"] for _, payload in await scene.signals()]
    assert sorted(found) == sorted(synapse.held(room))


async def test_a_sync_continues_after_its_server_restarts(synapse: Synapse, scene: Scene) -> None:
    room = synapse.create_room()
    synapse.send(room, *(f"message {number}" for number in range(60)))

    async def restart() -> None:
        synapse.server.kill()
        synapse.server.start()

    async with Toll(synapse.server.port, seconds=0.2) as toll:
        config = {"base_url": toll.url, "page_size": 5}
        await scene.connect("matrix", config, {"access_token": synapse.token})
        await scene.sync(disturb=restart)

    found = [payload["event_id"] for _, payload in await scene.signals()]
    assert sorted(found) == sorted(synapse.held(room))
