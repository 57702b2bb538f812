"""`github` against responses recorded from GitHub, served by Octokit's fixtures server."""

import os
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from integration.environments import program
from integration.scene import Scene
from integration.servers import Server, Toll, free_port, running
from support.github import TOKEN, GitHubDouble
from support.httpserver import threaded_server
from syncline.connectors.github import GitHub
from syncline.http import HttpEnvironment, Request, Response
from syncline.http.environment import Send
from syncline.testing.trial import take_pages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RECORDED = {
    "accept": "application/vnd.github.v3+json",
    "authorization": "token 0000000000000000000000000000000000000001",
}


@pytest.fixture
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    command = program("github-fixtures", "octokit-fixtures-server")
    scenarios = command.parents[1] / "@octokit/fixtures/scenarios/**/normalized-fixture.json"
    options = ["--port", str(port), "--fixtures", os.fspath(scenarios)]
    folder = tmp_path_factory.mktemp("github")
    with running(Server([command, *options], folder, port)) as server:
        yield server


async def as_recorded(request: Request, send: Send) -> Response:
    """Send requests exactly as they were recorded; the server knows no others."""
    for name in ("state", "sort", "direction", "since"):
        request.url = request.url.without_param(name)
    for name in ("x-github-api-version", "if-none-match"):
        request.headers.pop(name, None)
    request.headers.update(RECORDED)
    return await send(request)


async def test_recorded_pages_are_followed_by_their_links(fixtures: Server) -> None:
    answer = httpx2.post(f"{fixtures.url}/fixtures", json={"scenario": "paginate-issues"})
    base_url = answer.raise_for_status().json()["url"]
    connector = GitHub()
    connector.http_environment = HttpEnvironment(allow_private=True, intercept=as_recorded)
    config: dict[str, Any] = {
        "base_url": base_url,
        "repositories": ["octokit-fixture-org/paginate-issues"],
        "include": ["issues"],
        "page_size": 3,
    }

    pages = await take_pages(connector, config, credentials={"token": "recorded"})

    signals = [signal for page in pages for signal in page.signals]
    assert len(pages) == 5
    assert sorted(signal.payload["number"] for signal in signals) == list(range(1, 14))
    assert len({signal.dedupe_key for signal in signals}) == 13


async def test_workers_killed_in_the_middle_lose_and_double_nothing(scene: Scene) -> None:
    """It uses a fake GitHub, because nobody can run the real one."""
    github = GitHubDouble()
    for number in range(1, 31):
        github.put("issues", number, "first")
        github.put("issues/comments", number, "I see")
    with threaded_server(github) as server:
        async with Toll(server.port, seconds=0.1) as toll:
            config = {"base_url": toll.url, "repositories": ["acme/desk"], "page_size": 2}
            await scene.connect("github", config, {"token": TOKEN})
            await scene.sync_killed(60)
            github.put("issues", 5, "edited")
            await scene.sync()

    found = [(kind, payload["id"], payload["body"]) for kind, payload in await scene.signals()]
    wanted = [("issue", number, "first") for number in range(1, 31)]
    wanted += [("issue_comment", number, "I see") for number in range(1, 31)]
    assert sorted(found) == sorted([*wanted, ("issue", 5, "edited")])
