"""What a connector returned: a page, or an error that names the field and the signal."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.world import World, at
from syncline import Signal, SyncResult
from syncline.errors import ContractError
from syncline.sdk.page import Page, PageLimits, read_page

LIMITS = PageLimits(payload_bytes=1000, cursor_bytes=100, page_signals=10, page_bytes=3000)
ROOMY = PageLimits(10**6, 10**5, 1000, 10**8)
NOON = at("12:00")
# A calendar that runs off both ends of the years once it is put into UTC.
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


def result(**fields: Any) -> SyncResult:
    return SyncResult(**fields)


def signal(**fields: Any) -> Signal:
    return Signal(**{"kind": "seen", "occurred_at": NOON, "payload": {"n": 1}, **fields})


def read(returned: Any, cursor: Any = None, limits: PageLimits = LIMITS) -> Page:
    return read_page(returned, cursor=cursor, limits=limits)


def refusal(returned: Any, cursor: Any = None) -> str:
    with pytest.raises(ContractError) as refused:
        read(returned, cursor)
    return str(refused.value)


def test_a_page_is_read_into_columns() -> None:
    earlier = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    signals = [
        signal(dedupe_key="1"),
        signal(kind="gone", occurred_at=earlier, payload={}, dedupe_key=None),
    ]

    page = read(SyncResult(signals=signals, next_cursor={"p": 2}, has_more=True))

    assert page == Page(
        kinds=["seen", "gone"],
        occurred_at=[NOON, at("10:00")],
        payloads=['{"n":1}', "{}"],
        dedupe_keys=["1", None],
        next_cursor='{"p":2}',
        has_more=True,
        payload_bytes=9,
    )
    assert page.signal_count == 2


def test_an_empty_page_is_a_page() -> None:
    assert read(SyncResult()) == Page()


@pytest.mark.parametrize(
    "make",
    [list, tuple, iter, lambda signals: (one for one in signals)],
    ids=["list", "tuple", "iterator", "generator"],
)
def test_signals_may_be_any_iterable(make: Callable[[list[Signal]], Any]) -> None:
    assert read(SyncResult(signals=make([signal(), signal()]))).signal_count == 2


def test_any_mapping_is_a_payload() -> None:
    page = read(SyncResult(signals=[signal(payload=MappingProxyType({"a": 1}))]))

    assert page.payloads == ['{"a":1}']


@pytest.mark.parametrize("cursor", [{}, 0, "", [], False, "abc", {"a": None}], ids=repr)
def test_whatever_is_not_none_is_a_cursor(cursor: Any) -> None:
    assert read(SyncResult(next_cursor=cursor)).next_cursor is not None


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "sync() returned NoneType, not a SyncResult"),
        ({"signals": []}, "sync() returned dict, not a SyncResult"),
        ([signal()], "sync() returned list, not a SyncResult"),
        (result(has_more=1), "has_more is int, not a bool"),
        (result(has_more="no"), "has_more is str, not a bool"),
        (result(signals=None), "signals is NoneType, not a list of Signal"),
        (result(signals="ab"), "signals is str, not a list of Signal"),
        (result(signals={}), "signals is dict, not a list of Signal"),
        (result(signals=signal()), "signals is Signal, not a list of Signal"),
        (result(signals=[{}]), "signals[0] is dict, not a Signal"),
        (result(signals=[signal(), None]), "signals[1] is NoneType, not a Signal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_page_of_the_wrong_shape_is_refused(returned: Any, message: str) -> None:
    assert refusal(returned) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": ""}, "kind must be text of 1 to 255 characters"),
        ({"kind": "k" * 256}, "kind must be text of 1 to 255 characters"),
        ({"kind": None}, "kind must be text of 1 to 255 characters"),
        ({"kind": "a\0"}, "kind must be text of 1 to 255 characters"),
        ({"kind": "\ud800"}, "kind must be text of 1 to 255 characters"),
        ({"occurred_at": None}, "occurred_at is NoneType, not a datetime"),
        ({"occurred_at": "2025-01-01"}, "occurred_at is str, not a datetime"),
        ({"occurred_at": date(2025, 1, 1)}, "occurred_at is date, not a datetime"),
        ({"occurred_at": 1735732800}, "occurred_at is int, not a datetime"),
        ({"occurred_at": datetime(2025, 1, 1)}, "occurred_at has no time zone"),
        ({"payload": None}, "payload is NoneType, not a JSON object"),
        ({"payload": []}, "payload is list, not a JSON object"),
        ({"payload": "{}"}, "payload is str, not a JSON object"),
        ({"payload": {"a": float("nan")}}, "payload: Out of range float values are not JSON"),
        ({"payload": {"a": "\0"}}, "payload: has a NUL character"),
        ({"payload": {"a": "x" * 1000}}, "payload: 1008 bytes of JSON, over the limit of 1000"),
        ({"dedupe_key": ""}, "dedupe_key must be non-empty text that Postgres can store"),
        ({"dedupe_key": 42}, "dedupe_key is int, not a str; use str(…)"),
        ({"dedupe_key": "\0"}, "dedupe_key must be non-empty text that Postgres can store"),
        ({"dedupe_key": "\udfff"}, "dedupe_key must be non-empty text that Postgres can store"),
        ({"dedupe_key": "k" * 1025}, "dedupe_key is over 1024 bytes"),
        ({"dedupe_key": "😀" * 257}, "dedupe_key is over 1024 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else ascii(value)[:40],
)
@pytest.mark.parametrize("index", [0, 2])
def test_a_bad_field_is_named_with_its_signal(
    index: int, fields: dict[str, Any], message: str
) -> None:
    signals = [signal() for _ in range(index)] + [signal(**fields), signal()]

    assert refusal(SyncResult(signals=signals)).startswith(f"signals[{index}].{message}")


@pytest.mark.parametrize(
    ("instant", "reason"),
    [
        pytest.param(
            datetime.min.replace(tzinfo=UTC), "the first or last instant of", id="the first instant"
        ),
        pytest.param(
            datetime.max.replace(tzinfo=UTC), "the first or last instant of", id="the last instant"
        ),
        pytest.param(datetime.min.replace(tzinfo=EAST), "outside", id="before the first, in UTC"),
        pytest.param(datetime.max.replace(tzinfo=WEST), "outside", id="after the last, in UTC"),
    ],
)
def test_a_time_at_or_beyond_the_ends_of_the_calendar_is_refused(
    instant: datetime, reason: str
) -> None:
    message = refusal(SyncResult(signals=[signal(occurred_at=instant)]))

    assert message == f"signals[0].occurred_at is {reason} the years 1 to 9999"


@pytest.mark.parametrize("kind", ["k", "k" * 255, "ü" * 255])
@pytest.mark.parametrize("key", ["k" * 1024, "😀" * 256, " "])
def test_the_longest_names_are_taken(kind: str, key: str) -> None:
    assert read(SyncResult(signals=[signal(kind=kind, dedupe_key=key)])).signal_count == 1


def test_the_first_signal_with_a_key_wins() -> None:
    signals = [signal(dedupe_key="1"), signal(kind="again", dedupe_key="1"), signal(), signal()]

    assert read(SyncResult(signals=signals)).kinds == ["seen", "seen", "seen"]


def test_a_page_holds_no_more_signals_than_the_limit() -> None:
    assert read(SyncResult(signals=[signal()] * 10)).signal_count == 10
    assert refusal(SyncResult(signals=[signal()] * 11)) == "more than 10 signals in one page"


def test_an_endless_page_is_read_no_further_than_the_limit() -> None:
    taken = 0

    def endless() -> Iterator[Signal]:
        nonlocal taken
        while True:
            taken += 1
            yield signal()

    assert refusal(SyncResult(signals=endless())) == "more than 10 signals in one page"
    assert taken == 11


@pytest.mark.parametrize(
    ("character", "count"), [("x", 992), ("é", 496), ("😀", 248)], ids=["1", "2", "4 bytes"]
)
def test_a_page_holds_no_more_bytes_than_the_limit(character: str, count: int) -> None:
    large = signal(payload={"a": character * count})

    assert read(SyncResult(signals=[large] * 3)).signal_count == 3
    assert refusal(SyncResult(signals=[large] * 4)) == (
        "signals[3]: the page is over the limit of 3000 bytes"
    )


@pytest.mark.parametrize(
    ("next_cursor", "message"),
    [
        ({"a": "x" * 100}, "next_cursor: 108 bytes of JSON, over the limit of 100"),
        ({"a": {1, 2}}, "next_cursor: Object of type set is not JSON serializable"),
        ("\0", "next_cursor: has a NUL character"),
        ("\ud800", "next_cursor: has a lone surrogate"),
    ],
)
def test_a_bad_cursor_is_refused(next_cursor: Any, message: str) -> None:
    assert refusal(SyncResult(next_cursor=next_cursor)) == message


def test_more_needs_somewhere_to_go_on_from() -> None:
    assert refusal(SyncResult(has_more=True)) == (
        "has_more needs a next_cursor, from which the next run continues"
    )


@pytest.mark.parametrize(
    ("cursor", "next_cursor"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"1": "x"}, {1: "x"}),
        ([1, 2], (1, 2)),
        (10**16, 1e16),
        (0, -0.0),
        ("", ""),
        ({}, {}),
        (False, False),
    ],
    ids=repr,
)
def test_more_with_the_cursor_unchanged_would_never_end(cursor: Any, next_cursor: Any) -> None:
    result = SyncResult(next_cursor=next_cursor, has_more=True)

    assert refusal(result, cursor) == "has_more needs a new cursor; with the same one it never ends"
    assert read(SyncResult(next_cursor=next_cursor), cursor).has_more is False


@pytest.mark.parametrize(
    ("cursor", "next_cursor"),
    [(None, {}), ({}, []), (1, True), (0, False), ("1", 1), ({"a": 1}, {1: 1, "a": 1})],
    ids=repr,
)
def test_more_with_another_cursor_goes_on(cursor: Any, next_cursor: Any) -> None:
    assert read(SyncResult(next_cursor=next_cursor, has_more=True), cursor).has_more


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
signals = st.builds(
    Signal,
    kind=texts.filter(bool),
    occurred_at=st.datetimes(timezones=st.sampled_from([UTC, EAST, WEST])),
    payload=st.dictionaries(texts, json_values, max_size=3),
    dedupe_key=st.none() | texts.filter(bool),
)


@given(st.lists(signals, max_size=5), json_values)
@example([signal(occurred_at=datetime.min.replace(tzinfo=UTC) + timedelta.resolution)], 1)
@example([signal(occurred_at=datetime.max.replace(tzinfo=UTC) - timedelta.resolution)], 1)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_read_can_be_stored_and_comes_back_the_same(
    world: World, signals: list[Signal], cursor: Any
) -> None:
    try:
        page = read(SyncResult(signals=signals, next_cursor=cursor), limits=ROOMY)
    except ContractError:
        return

    connection = await world.connection()
    world.connector.script.append(SyncResult(signals=signals, next_cursor=cursor))
    await world.engine.trigger(connection.id)
    await world.run_due()

    stored = await world.signals(connection)
    assert [one.kind for one in stored] == page.kinds
    assert [one.occurred_at for one in stored] == page.occurred_at
    assert [one.dedupe_key for one in stored] == page.dedupe_keys
    kept = {signal.dedupe_key: signal.payload for signal in reversed(signals)}
    assert all(one.payload == kept[one.dedupe_key] for one in stored if one.dedupe_key)
    assert (await world.sync_metadata(connection)).get("cursor") == cursor
