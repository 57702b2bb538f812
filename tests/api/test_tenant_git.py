"""The provider git and tenants' keys: refused until named, and where it is open to operators."""

from pathlib import Path

import httpx2
import pytest

from support.world import World
from syncline.connectors.git import GitCommits
from syncline.settings.git import GitSettings

Client = httpx2.AsyncClient
BODY = {"provider_slug": "git", "external_id": "repo", "config": {"url": "https://git.example/x"}}


async def asked(world: World, acme: Client, git: GitSettings) -> httpx2.Response:
    """Return the answer to a tenant who asks for a connection, with these settings for git."""
    connector = GitCommits()
    connector.configure(git)
    world.engine.providers["git"] = connector
    return await acme.post("/v1/connections", json=BODY)


async def test_git_is_refused_until_an_operator_names_it(world: World, acme: Client) -> None:
    answer = await asked(world, acme, GitSettings())

    assert answer.status_code == 403
    assert "api.tenant_providers" in answer.json()["detail"]


@pytest.mark.engine(api={"tenant_providers": ["git"]})
async def test_git_may_be_connected_where_it_is_named(world: World, acme: Client) -> None:
    assert (await asked(world, acme, GitSettings())).status_code == 201


@pytest.mark.parametrize(
    "git", [GitSettings(local_roots=[Path("/srv")]), GitSettings(schemes=["ssh"])]
)
@pytest.mark.engine(api={"tenant_providers": ["git"]})
async def test_what_is_open_to_operators_stays_closed_to_tenants(
    git: GitSettings, world: World, acme: Client
) -> None:
    answer = await asked(world, acme, git)

    assert answer.status_code == 403
    assert "git.local_roots" in answer.json()["detail"]
