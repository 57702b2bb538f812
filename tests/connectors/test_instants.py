"""Instants as providers write them."""

from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.connectors.timestamps import earlier, later, latest, read_instant

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "2024-05-01T12:00:00Z",
        "2024-05-01T14:00:00+02:00",
        "2024-05-01 12:00:00",
        "Wed, 01 May 2024 12:00:00 GMT",
        int(NOON.timestamp()),
        NOON.timestamp(),
        int(NOON.timestamp() * 1000),
    ],
)
def test_an_instant_is_read_in_any_form(written: Any) -> None:
    assert read_instant(written) == NOON


@pytest.mark.parametrize("written", [None, True, "", "soon", 1e300, [], float("nan")])
def test_other_values_are_not_instants(written: Any) -> None:
    assert read_instant(written) is None


def test_the_later_value_stays_as_it_was_written() -> None:
    ours = NOON.astimezone(timezone(timedelta(hours=9))).isoformat()

    assert later(ours, "2024-05-01T11:59:59Z") == ours
    assert later("2024-05-01T12:00:01Z", ours) == "2024-05-01T12:00:01Z"
    assert later(9, 10) == 10
    assert later("aa", "ab") == "ab"
    assert later(None, 3) == later(3, None) == 3


def test_an_earlier_value_keeps_its_form() -> None:
    assert earlier("2024-05-01T12:00:10Z", 10) == "2024-05-01T12:00:00Z"
    assert earlier(1_700_000_010, 10) == 1_700_000_000
    assert earlier(1_700_000_010_000, 10) == 1_700_000_000_000
    assert earlier("abc", 10) == "abc"


SEEN = st.sampled_from(
    [None, "2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", "2024-05-02", "soon", "", 3, 4.5]
)


@given(SEEN, st.lists(SEEN))
def test_the_latest_of_many_is_found_one_by_one(seen: Any, values: list[Any]) -> None:
    assert latest(seen, values) == reduce(later, values, seen)
