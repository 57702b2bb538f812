"""GitHub: every listing, changes during a sync, rate limits and ETags."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.github import TOKEN, GitHubDouble
from support.httpserver import HttpServer, Reply, json_reply, threaded_server
from syncline import Permanent, RateLimited, Unauthorized
from syncline.connectors.github import GitHub
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import TrialPage, one_run, prepare_trial, take_pages, trial_connection

CREDENTIALS = {"token": TOKEN}


@pytest.fixture
def github() -> GitHubDouble:
    double = GitHubDouble()
    for number in range(1, 6):
        double.put("issues", number, "first")
    double.put("issues", 6, "please merge", pull_request={"merged_at": None})
    double.put("issues/comments", 1, "I see")
    double.put("pulls/comments", 2, "typo")
    for sha in ("a1", "b2", "c3"):
        double.commit(sha)
    return double


@pytest.fixture
def server(github: GitHubDouble) -> Iterator[HttpServer]:
    with threaded_server(github) as server:
        yield server


def configuration(server: HttpServer, **more: Any) -> dict[str, Any]:
    return {"base_url": server.url, "repositories": ["acme/desk"], "page_size": 2} | more


async def run(config: dict[str, Any], cursor: Any = None) -> list[TrialPage]:
    return await take_pages(prepare_trial(GitHub()), config, credentials=CREDENTIALS, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, Any]]:
    return [
        (signal.kind, signal.payload.get("id") or signal.payload["sha"])
        for page in pages
        for signal in page.signals
    ]


class TestConformance(ConnectorConformance):
    connector = GitHub
    credentials = CREDENTIALS

    @pytest.fixture(autouse=True)
    def served(self, server: HttpServer) -> None:
        self.config = configuration(server)


async def test_a_full_sync_brings_everything_once(server: HttpServer) -> None:
    pages = await run(configuration(server))

    assert sorted(told(pages), key=str) == sorted(
        [("issue", n) for n in range(1, 6)]
        + [("pull_request", 6), ("issue_comment", 1), ("review_comment", 2)]
        + [("commit", sha) for sha in ("a1", "b2", "c3")],
        key=str,
    )


async def test_the_next_sync_brings_only_changes(server: HttpServer, github: GitHubDouble) -> None:
    [*_, last] = await run(configuration(server))
    known = {s.dedupe_key for page in await run(configuration(server)) for s in page.signals}
    github.put("issues", 2, "edited")
    github.commit("d4")
    github.commit("e5", days_ago=3)

    pages = await run(configuration(server), last.next_cursor)

    new = [s for page in pages for s in page.signals if s.dedupe_key not in known]
    assert [(s.kind, s.payload.get("body") or s.payload["sha"]) for s in new] == [
        ("issue", "edited"),
        ("commit", "d4"),
        ("commit", "e5"),
    ]


async def test_unchanged_listings_cost_a_304(server: HttpServer) -> None:
    [*_, last] = await run(configuration(server, page_size=100))
    [*_, again] = await run(configuration(server, page_size=100), last.next_cursor)
    count = len(server.seen)

    [nothing] = await run(configuration(server, page_size=100), again.next_cursor)

    assert nothing.signals == ()
    assert all("if-none-match" in seen.headers for seen in server.seen[count:])
    assert len(server.seen) == count + 4


async def test_an_issue_updated_during_a_sync_hides_no_other(
    server: HttpServer, github: GitHubDouble
) -> None:
    connector = prepare_trial(GitHub())
    config = configuration(server, include=["issues"])
    connection = trial_connection(connector, config, CREDENTIALS)
    found: set[Any] = set()
    cursor = None
    for _ in range(2):
        async for page in one_run(connector, connection, cursor):
            found |= {(s.payload["id"], s.payload["body"]) for s in page.signals}
            cursor = page.next_cursor
            if len(found) == 1:
                github.put("issues", 1, "moved to the front")

    assert {number for number, _ in found} == {1, 2, 3, 4, 5}
    assert (1, "moved to the front") in found


async def test_only_chosen_kinds_are_read(server: HttpServer) -> None:
    pages = await run(configuration(server, include=["pull_requests"]))

    assert told(pages) == [("pull_request", 6)]
    assert {seen.path for seen in server.seen} == {"/repos/acme/desk/issues"}


async def test_payloads_have_no_api_urls(server: HttpServer) -> None:
    [first, *_] = await run(configuration(server))

    for signal in first.signals:
        assert "url" not in signal.payload
        assert signal.payload["html_url"] == "https://github.com/acme/desk"
        assert signal.payload["repository"] == "acme/desk"


async def test_a_page_that_github_forgot_restarts_the_listing(
    server: HttpServer, github: GitHubDouble
) -> None:
    [first, *_] = await run(configuration(server))
    github.replies = [json_reply({"message": "Validation Failed"}, 422)]

    pages = await run(configuration(server), first.next_cursor)

    assert [n for kind, n in told(pages) if kind == "issue"] == [5, 4, 3, 2, 1]


async def test_an_empty_repository_is_not_an_error(
    server: HttpServer, github: GitHubDouble
) -> None:
    github.records["commits"].clear()

    assert told(await run(configuration(server, include=["commits"]))) == []


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (
            json_reply(
                {"message": "API rate limit exceeded"},
                403,
                x_ratelimit_remaining="0",
                x_ratelimit_reset="1794750090",
                date="Sun, 15 Nov 2026 13:40:00 GMT",
            ),
            90,
        ),
        (json_reply({"message": "You have exceeded a secondary rate limit"}, 403), 60),
        (
            json_reply({"message": "a secondary rate limit"}, 429, retry_after="7"),
            7,
        ),
    ],
    ids=["primary", "secondary", "secondary with its time"],
)
async def test_rate_limits_say_how_long_to_wait(
    server: HttpServer, github: GitHubDouble, reply: Reply, seconds: float
) -> None:
    github.replies = [reply]

    with pytest.raises(RateLimited) as raised:
        await run(configuration(server))

    assert raised.value.retry_after_seconds == seconds


async def test_revoked_tokens_and_unknown_repositories_are_refused(
    server: HttpServer, github: GitHubDouble
) -> None:
    github.replies = [json_reply({"message": "Bad credentials"}, 401)]
    with pytest.raises(Unauthorized, match="Bad credentials"):
        await run(configuration(server))
    with pytest.raises(Permanent, match="answered 404: Not Found"):
        await run(configuration(server, repositories=["acme/other"]))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"repositories": []}, "config.repositories"),
        ({"repositories": ["desk"]}, "config.repositories.0"),
        ({"include": ["stars"]}, "config.include.0"),
        ({"page_size": 101}, "config.page_size"),
    ],
)
async def test_a_wrong_configuration_names_its_field(
    server: HttpServer, more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Permanent, match=complaint):
        await run(configuration(server, **more))
