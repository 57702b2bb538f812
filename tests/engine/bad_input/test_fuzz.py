"""Whatever metadata, cursors, pages and errors may hold: contained, bounded, readable again."""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.databases import Databases
from support.mixed_batch import Answering, MixedBatch, batch_world
from support.world import World, at, open_world
from syncline import RateLimited, Signal, SyncResult

fuzzed = settings(
    max_examples=5,
    phases=[Phase.generate],  # each example is a whole batch; shrinking one takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
numbers = st.integers() | st.floats(-1e15, 1e15, allow_nan=False)
scalars = st.none() | st.booleans() | numbers | storable
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable, inner, max_size=3),
    max_leaves=8,
)
any_text = st.text(max_size=40)  # with NUL and lone surrogates
anything = st.recursive(
    scalars | any_text | st.floats() | st.binary(max_size=4) | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)

sync_keys = st.sampled_from(
    ["interval_seconds", "next_run_at", "last_jitter_seconds", "first_activated_at", "mine"]
)
syncs = st.dictionaries(sync_keys, json_values | st.integers(50, 100_000), max_size=5)
metadata = json_values | st.fixed_dictionaries(
    {"sync": json_values | syncs}, optional={"beside": json_values}
)

WRITTEN = ("next_run_at", "last_jitter_seconds", "interval_seconds")


@fuzzed
@given(documents=st.lists(metadata, min_size=12, max_size=12), cursor=json_values)
async def test_any_metadata_is_ticked_and_kept(
    database_url: str, databases: Databases, documents: list[Any], cursor: Any
) -> None:
    """Every connection gets its job; cursor and foreign keys stay; a valid interval counts."""

    async def live(world: World) -> None:
        for document in documents:
            if isinstance(document, dict) and isinstance(document.get("sync"), dict):
                document["sync"]["cursor"] = cursor
        ids = [(await world.connection(metadata=document)).id for document in documents]
        assert (await world.tick()).scheduled == len(documents)

        for id_, before in zip(ids, documents, strict=True):
            after = (await world.engine.connections.get(id_)).metadata
            sync, published = (
                object_or_empty(before, "sync"),
                {"next_run_at", "last_jitter_seconds"},
            )
            assert without(after, "sync") == without(object_or_empty(before), "sync")
            assert without(after["sync"], *published, "interval_seconds") == without(
                sync, *published, "interval_seconds"
            )
            assert json.loads(json.dumps(after)) == after
        assert await world.engine.verify() == []

    await in_fresh_world(database_url, databases, live)


@fuzzed
@given(cursors=st.lists(json_values, min_size=10, max_size=10))
async def test_any_cursor_comes_back(
    database_url: str, databases: Databases, cursors: list[Any]
) -> None:
    """What a run returned is what the next one gets; null means none was given."""

    async def live(world: World) -> None:
        connection = await world.connection(sync={"cursor": "before"})
        expected = ["before"]
        for cursor in cursors:
            await world.engine.trigger(connection.id)
            world.script(SyncResult(next_cursor=cursor))
            assert await world.run_due() == 1
            expected.append(expected[-1] if cursor is None else cursor)
        assert [cursor for _, cursor in world.connector.calls] == expected[:-1]

    await in_fresh_world(database_url, databases, live)


@fuzzed
@given(
    pages=st.lists(
        st.builds(
            lambda kind, at_, payload, key, cursor, more: SyncResult(
                [Signal(kind, at_, payload, key)], cursor, more
            ),
            any_text | st.none(),
            st.datetimes(timezones=st.none() | st.timezones()) | st.just(at("11:00")),
            st.dictionaries(any_text, anything, max_size=3) | anything,
            any_text | st.none() | st.integers(),
            anything,
            st.just(False) | anything.filter(lambda value: value is not True),
        )
        | anything,
        min_size=15,
        max_size=15,
    )
)
async def test_any_answer_is_stored_whole_or_refused(
    database_url: str, databases: Databases, pages: list[Any]
) -> None:
    databases.empty(database_url)
    async with batch_world(database_url, Answering()) as world:
        batch = MixedBatch(world)
        await batch.run({str(number): partial(same, page) for number, page in enumerate(pages)})

        for name, job in batch.jobs.items():
            if job.status == "succeeded":
                [signal] = await world.signals(batch.connections[name])
                json.dumps(signal.payload, allow_nan=False)
                assert isinstance(signal.occurred_at, datetime)
            else:
                await batch.assert_nothing_was_stored(name)
        await batch.assert_errors_are_bounded()


@fuzzed
@given(
    errors=st.lists(
        st.builds(
            lambda message, hint, details: RateLimited(
                message, retry_after_seconds=hint, details=details
            ),
            any_text | any_text.map(lambda text: text * 1000),
            st.none() | st.floats() | st.integers() | any_text | st.booleans(),
            st.none() | st.dictionaries(any_text, anything, max_size=3) | anything,
        )
        | st.builds(OSError, anything, anything),
        min_size=15,
        max_size=15,
    )
)
async def test_any_error_is_recorded(
    database_url: str, databases: Databases, errors: list[Exception]
) -> None:
    databases.empty(database_url)
    async with batch_world(database_url, Answering()) as world:
        batch = MixedBatch(world)
        await batch.run({str(number): partial(fail, error) for number, error in enumerate(errors)})
        for name in batch.jobs:
            await batch.assert_nothing_was_stored(name)
        await batch.assert_errors_are_bounded()


def same(value: Any) -> Any:
    return value


def fail(error: Exception) -> None:
    raise error


async def in_fresh_world(
    url: str, databases: Databases, live: Callable[[World], Awaitable[None]]
) -> None:
    databases.empty(url)
    async with open_world(url) as world:
        await live(world)


def object_or_empty(value: Any, *path: str) -> dict[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}
