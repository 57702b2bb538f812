"""Recordings: what is kept of HTTP calls, and what is played back."""

import stat
from pathlib import Path
from typing import Any

import pytest

from support.archive import Archive
from support.help_desk import URL, BlockingHelpDesk, HelpDesk, HelpDeskServer, StreamingHelpDesk
from syncline import Transient
from syncline.http import ConnectError, Request, Response
from syncline.http.environment import Intercept, Send
from syncline.testing import replay, take_pages
from syncline.testing.recorder import (
    Call,
    Masker,
    Player,
    Recorder,
    UnrecordedCall,
    load_calls,
    save_calls,
)
from syncline.testing.trial import chain, prepare_trial

SECRETS = {"token": "t0p/secret", "query": {"api_key": "k3y-in-the-url"}}


async def recorded(path: Path, server: Intercept, **options: Any) -> list[Call]:
    """Walk through the desk and keep its calls in a file."""
    calls: list[Call] = []
    masker = Masker(options.get("credentials"))
    connector = prepare_trial(HelpDesk(), chain(Recorder(calls, masker), server))
    await take_pages(connector, **options)
    save_calls(path, calls)
    return calls


@pytest.mark.parametrize("kind", [HelpDesk, StreamingHelpDesk, BlockingHelpDesk])
async def test_what_was_recorded_is_played_back(kind: type[HelpDesk], tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    await recorded(path, HelpDeskServer())

    pages = await take_pages(replay(kind(), path))

    keys = [signal.dedupe_key for page in pages for signal in page.signals]
    assert keys == ["1", "2", "3", "4", "5"]


async def test_a_recording_of_an_earlier_version_replays_unchanged() -> None:
    """The URLs and the bodies of requests are the key of a recording."""
    path = Path(__file__).with_name("recorded_before.json")
    secrets = {"token": "t0p-secret"}

    (page,) = await take_pages(replay(Archive(), path, secrets), credentials=secrets)

    answers = page.next_cursor["answers"]
    told = [
        [c.status, c.content.decode()] for c in load_calls(path) if b"\x1f\x8b" not in c.content
    ]
    told = [answer for answer in told if answer[0] != 302]
    assert answers[:10] + answers[11:] == told
    assert answers[10] == [200, "packed although nobody asked"]


async def test_secrets_are_not_kept_and_others_will_do_for_a_replay(tmp_path: Path) -> None:
    class Echo(HelpDeskServer):
        async def __call__(self, request: Request, send: Send) -> Response:
            answer = await super().__call__(request, send)
            body = answer.json() | {"sent": request.headers, "access_token": "fr3sh"}
            return Response(200, json=body)

    path = tmp_path / "calls.json"
    await recorded(path, Echo(), credentials=SECRETS)

    kept = path.read_text()
    for secret in ("t0p/secret", "t0p%2Fsecret", "k3y-in-the-url", "fr3sh", "session=abc"):
        assert secret not in kept
    others = {"token": "another", "query": {"api_key": "another key"}}
    pages = await take_pages(replay(HelpDesk(), path, others), credentials=others)
    assert len(pages) == 3


def test_a_name_and_a_password_are_masked_as_they_travel() -> None:
    masker = Masker({"username": "ada", "password": "l0velace"})

    assert masker.text("Basic YWRhOmwwdmVsYWNl, or l0velace of ada") == "Basic ***, or *** of ada"


async def test_a_call_that_was_not_recorded_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    calls = await recorded(path, HelpDeskServer())
    save_calls(path, calls[:1])

    with pytest.raises(UnrecordedCall, match=rf"GET {URL}/tickets\?after=2 is not in calls.json"):
        await take_pages(replay(HelpDesk(), path))


async def test_equal_calls_get_their_answers_in_turn() -> None:
    told = [call("one"), call("two")]
    player = Player(told, Masker(), "calls.json")

    said = [await ask(player) for _ in range(3)]

    assert said == ["one", "two", "two"]


async def test_conditional_calls_are_told_apart() -> None:
    told = [call("all"), call("", status=304, deciding={"if-none-match": '"v1"'})]
    player = Player(told, Masker(), "calls.json")

    assert await ask(player) == "all"
    answer = await player(Request("GET", URL, {"If-None-Match": '"v1"'}), nowhere)
    assert answer.status_code == 304


async def test_lost_connections_are_recorded_too(tmp_path: Path) -> None:
    async def lost(request: Request, send: Send) -> Response:
        raise ConnectError("nobody there")

    path = tmp_path / "calls.json"
    calls: list[Call] = []
    connector = prepare_trial(HelpDesk(), chain(Recorder(calls, Masker()), lost))
    with pytest.raises(Transient):
        await take_pages(connector)
    save_calls(path, calls)

    with pytest.raises(Transient, match="recorded: ConnectError"):
        await take_pages(replay(HelpDesk(), path))


async def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    whole = Call("GET", URL, {}, "", 200, {"content-type": "image/png"}, b"\x89PNG\xff\x00")

    save_calls(path, [whole])

    assert load_calls(path) == [whole]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "calls": []}', '{"version": 1}'])
def test_what_is_no_recording_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"calls\.json is not a recording"):
        replay(HelpDesk(), path)


def call(text: str, *, status: int = 200, deciding: dict[str, str] | None = None) -> Call:
    return Call("GET", URL, deciding or {}, "", status, {}, text.encode())


async def ask(player: Player) -> str:
    return (await player(Request("GET", URL), nowhere)).text


async def nowhere(request: Request) -> Response:
    raise AssertionError("a replay sends nothing")


def test_a_recording_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text("older")
    path.chmod(0o644)

    save_calls(path, [])

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
