"""Errors that callers read by their fields."""

import copy
import pickle
from datetime import timedelta
from uuid import UUID

import pytest

import syncline
from syncline.errors import (
    Changed,
    Conflict,
    Invalid,
    NotFound,
    PositionLost,
    Refused,
    TooSlow,
)

ID = UUID("01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0")

REFUSALS = [
    (Invalid("interval_seconds", "is 5; it must be 60"), "interval_seconds is 5; it must be 60"),
    (NotFound("job", ID), f"there is no job {ID}"),
    (Conflict(ID), f"connection {ID} exists already"),
    (Conflict(ID, "job", "is running"), f"job {ID} is running"),
    (Conflict(None, "tenant acme", "is full"), "tenant acme is full"),
    (Changed(ID, "abc"), f"connection {ID} has changed; its version is now abc"),
    (PositionLost("is unknown"), "position is unknown; the database is another one, or was "),
]


@pytest.mark.parametrize(("error", "sentence"), REFUSALS, ids=lambda value: str(value)[:40])
def test_a_refusal_reads_well_and_survives_a_copy(error: Refused, sentence: str) -> None:
    assert str(error).startswith(sentence)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_a_refusal_is_what_callers_caught_before() -> None:
    assert isinstance(Invalid("a", "b"), ValueError)
    assert isinstance(Conflict(ID), ValueError)
    assert isinstance(NotFound("job", ID), LookupError)


def test_refusals_have_fields() -> None:
    invalid, missing, taken = Invalid("field", "reason"), NotFound("job", ID), Conflict(ID)

    assert (invalid.field, invalid.reason) == ("field", "reason")
    assert (missing.what, missing.id) == ("job", ID)
    assert taken.existing_id == ID


def test_a_field_of_a_list_is_named_with_its_place() -> None:
    nested = Invalid("external_id", "is ''").within("connections[3]")

    assert nested.field == "connections[3].external_id"


def test_equal_refusals_can_be_counted_together() -> None:
    assert NotFound("job", ID).summary == "there is no such job"
    assert Conflict(ID, "job", "is running").summary == "job is running"


def test_a_slow_query_says_what_to_do() -> None:
    assert str(TooSlow(timedelta(seconds=5))) == ("the query took more than 5 s; narrow the filter")


@pytest.mark.parametrize("name", ["Conflict", "Invalid", "NotFound", "Refused"])
def test_refusals_are_exported(name: str) -> None:
    assert getattr(syncline, name) is globals()[name]
    assert name in syncline.__all__
