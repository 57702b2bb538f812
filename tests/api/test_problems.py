"""A bug answers 500 and is logged with its trace; a refusal names its fields."""

import logging

import httpx2
import pytest

from support.http import BASE, client_of
from support.world import World
from syncline.api.app import create_app
from syncline.model import JobType


async def test_a_bug_is_a_500_and_logged_with_its_trace(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(world.engine)
    bugs: list[Exception] = [
        ValueError("password=hunter2"),
        LookupError("password=hunter2"),
        KeyError("password=hunter2"),
        RuntimeError("password=hunter2"),
    ]

    @app.get("/v1/broken/{number}")
    async def broken(number: int) -> None:
        raise bugs[number]

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        for number, bug in enumerate(bugs):
            caplog.clear()
            answer = await client.get(f"/v1/broken/{number}")

            problem = answer.json()
            assert (answer.status_code, problem["status"]) == (500, 500)
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem["type"] == "/docs#problem-internal"
            assert "hunter2" not in answer.text
            [record] = [one for one in caplog.records if one.levelno == logging.ERROR]
            assert record.name == "syncline.http"
            assert "Traceback" in record.getMessage()
            assert type(bug).__name__ in record.getMessage()
            assert "hunter2" not in f"{record.getMessage()} {vars(record)}"


async def test_a_conflict_names_the_row_in_the_way(world: World) -> None:
    paused = await world.connection(status="paused")
    async with client_of(world.engine) as client:
        answer = await client.post(f"/v1/connections/{paused.id}/sync")

    assert answer.status_code == 409
    assert answer.json()["existing_id"] == str(paused.id)


async def test_a_refused_query_names_the_parameter(world: World) -> None:
    async with client_of(world.engine) as client:
        for query, field in (
            ("connections?prefix=%00", "prefix"),
            ("connections?tenant=%00", "tenant"),
            ("connections?provider=%00", "provider"),
            ("connections?page=nonsense", "page"),
            ("jobs?tenant=%00", "tenant"),
            ("jobs?provider=%00", "provider"),
            ("jobs?since=2025-01-01T00:00:00", "since"),
            ("jobs?until=0001-01-01T00:00:00Z", "until"),
            ("jobs?page=nonsense", "page"),
            ("signals?kind=%00", "kind"),
            ("signals?since=2025-01-01T00:00:00", "since"),
            ("signals?page=nonsense", "page"),
            ("signals/follow?position=nonsense", "position"),
        ):
            answer = await client.get(f"/v1/{query}")

            assert answer.status_code == 422, query
            [error] = answer.json()["errors"]
            assert error["field"] == field
            assert answer.json()["detail"].startswith(field)


async def test_a_refused_body_names_the_field(world: World) -> None:
    connection = await world.connection()
    async with client_of(world.engine) as client:
        for method, path, body, field in (
            ("PATCH", "", {"config": {"a": "\0"}}, "config"),
            ("PATCH", "", {"cursor": "\0"}, "cursor"),
            ("PATCH", "", {"interval_seconds": 31_536_000}, "interval_seconds"),
            ("PATCH", "", {}, "request"),
            ("POST", "/pause", {"reason": "\0"}, "reason"),
            ("POST", "/sync", {"job_type": JobType.FULL, "priority": 40_000}, "priority"),
        ):
            path = f"/v1/connections/{connection.id}{path}"
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
