"""`caldav` against Radicale: tokens, changes, deletions, a restart, and killed workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from integration.environments import program
from integration.scene import Scene
from integration.servers import Server, Toll, free_port, running
from support.calendar import PASSWORD, USER, event
from syncline import Unauthorized
from syncline.connectors.caldav.connector import CalDav
from syncline.testing.trial import TrialPage, prepare_trial, take_pages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CALENDAR = f"/{USER}/work/"
CREDENTIALS = {"username": USER, "password": PASSWORD}


class Radicale:
    """A running Radicale with one calendar."""

    def __init__(self, server: Server, users: Path) -> None:
        self.server = server
        self._users = users
        self._http = httpx2.Client(base_url=server.url, auth=(USER, PASSWORD), timeout=30)

    def make_calendar(self) -> None:
        self._http.request("DELETE", CALENDAR)
        self._http.request("MKCALENDAR", CALENDAR).raise_for_status()

    def put(self, name: str, summary: str) -> None:
        content = event(name, summary)
        self._http.put(f"{CALENDAR}{name}.ics", content=content).raise_for_status()

    def delete(self, name: str) -> None:
        self._http.delete(f"{CALENDAR}{name}.ics").raise_for_status()

    def set_password(self, password: str) -> None:
        self._users.write_text(f"{USER}:{password}\n")

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def radicale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Radicale]:
    folder, port = tmp_path_factory.mktemp("radicale"), free_port()
    users = folder / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    options = {
        "server-hosts": f"127.0.0.1:{port}",
        "auth-type": "htpasswd",
        "auth-htpasswd-filename": str(users),
        "auth-htpasswd-encryption": "plain",
        "auth-delay": "0",
        "storage-filesystem-folder": str(folder / "collections"),
    }
    command: list[str | Path] = [program("radicale", "python"), "-m", "radicale"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    with running(Server(command, folder, port)) as server:
        radicale = Radicale(server, users)
        radicale.make_calendar()
        yield radicale
        radicale.close()


async def run(radicale: Radicale, cursor: Any = None) -> list[TrialPage]:
    config = {"url": f"{radicale.server.url}{CALENDAR}", "page_size": 4}
    return await take_pages(prepare_trial(CalDav()), config, credentials=CREDENTIALS, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, str]]:
    return [
        (signal.kind, signal.payload["href"].rpartition("/")[2])
        for page in pages
        for signal in page.signals
    ]


async def test_full_then_changes_and_deletions_then_nothing(radicale: Radicale) -> None:
    for number in range(10):
        radicale.put(f"e{number}", "first")
    whole = await run(radicale)
    radicale.put("e3", "edited")
    radicale.delete("e7")
    radicale.put("new", "new")

    changes = await run(radicale, whole[-1].next_cursor)
    [nothing] = await run(radicale, changes[-1].next_cursor)

    assert told(whole) == [("event_changed", f"e{number}.ics") for number in range(10)]
    assert told(changes) == [
        ("event_changed", "e3.ics"),
        ("object_deleted", "e7.ics"),
        ("event_changed", "new.ics"),
    ]
    assert changes[0].signals[0].payload["objects"][0]["summary"] == "edited"
    assert nothing.signals == ()


async def test_an_outdated_token_is_reported_and_everything_is_read_again(
    radicale: Radicale,
) -> None:
    radicale.put("one", "first")
    unknown = {"token": "http://radicale.org/ns/sync/" + "0" * 64}

    pages = await run(radicale, unknown)

    assert [signal.kind for page in pages for signal in page.signals] == [
        "calendar_reset",
        "event_changed",
    ]


async def test_a_changed_password_is_unauthorized(radicale: Radicale) -> None:
    radicale.set_password("another")
    radicale.server.stop()
    radicale.server.start()

    with pytest.raises(Unauthorized):
        await run(radicale)


def configuration(url: str) -> dict[str, Any]:
    return {"url": url + CALENDAR, "page_size": 2}


async def test_workers_killed_in_the_middle_lose_and_double_nothing(
    radicale: Radicale, scene: Scene
) -> None:
    for number in range(24):
        radicale.put(f"e{number}", "first")
    async with Toll(radicale.server.port, seconds=0.2) as toll:
        await scene.connect("caldav", configuration(toll.url), CREDENTIALS)
        await scene.sync_killed(24)
        radicale.put("e5", "edited")
        radicale.delete("e6")
        await scene.sync()

    signals = [
        (kind, payload["href"].rpartition("/")[2]) for kind, payload in await scene.signals()
    ]
    assert sorted(signals) == sorted(
        [("event_changed", f"e{number}.ics") for number in range(24)]
        + [("event_changed", "e5.ics"), ("object_deleted", "e6.ics")]
    )


async def test_a_sync_continues_after_its_server_restarts(radicale: Radicale, scene: Scene) -> None:
    for number in range(24):
        radicale.put(f"e{number}", "first")

    async def restart() -> None:
        radicale.server.kill()
        radicale.server.start()

    async with Toll(radicale.server.port, seconds=0.2) as toll:
        await scene.connect("caldav", configuration(toll.url), CREDENTIALS)
        await scene.sync(disturb=restart)

    signals = [
        (kind, payload["href"].rpartition("/")[2]) for kind, payload in await scene.signals()
    ]
    assert sorted(signals) == sorted(("event_changed", f"e{number}.ics") for number in range(24))
