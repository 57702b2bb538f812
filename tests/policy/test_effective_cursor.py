"""Where a run starts from: the job's cursor, else the connection's, else nothing."""

from typing import Any

import pytest

from syncline.policy.cursor import effective_cursor

PRESENT = [{}, 0, "", [], False, {"page": 2}, "abc", 7, 0.0]
OWN, STORED = {"own": 1}, {"stored": 1}


@pytest.mark.parametrize("job_type", ["incremental", "webhook"])
@pytest.mark.parametrize(
    ("job_cursor", "stored_cursor", "expected"),
    [
        pytest.param(OWN, STORED, OWN, id="both"),
        pytest.param(OWN, None, OWN, id="the job's alone"),
        pytest.param(None, STORED, STORED, id="the connection's alone"),
        pytest.param(None, None, None, id="neither"),
    ],
)
def test_the_job_comes_first(
    job_type: str, job_cursor: Any, stored_cursor: Any, expected: Any
) -> None:
    assert effective_cursor(job_type, job_cursor, stored_cursor) == expected


@pytest.mark.parametrize(("job_cursor", "expected"), [(OWN, OWN), (None, None)])
@pytest.mark.parametrize("stored_cursor", [STORED, None])
def test_a_full_run_never_goes_on_from_the_stored_one(
    job_cursor: Any, stored_cursor: Any, expected: Any
) -> None:
    assert effective_cursor("full", job_cursor, stored_cursor) == expected


@pytest.mark.parametrize("cursor", PRESENT, ids=repr)
@pytest.mark.parametrize("job_type", ["incremental", "webhook", "full"])
def test_what_python_calls_false_is_a_cursor_all_the_same(job_type: str, cursor: Any) -> None:
    assert effective_cursor(job_type, cursor, STORED) is cursor


@pytest.mark.parametrize("cursor", PRESENT, ids=repr)
def test_also_where_the_connection_holds_it(cursor: Any) -> None:
    assert effective_cursor("incremental", None, cursor) is cursor
