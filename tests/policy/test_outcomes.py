"""What an attempt came to: the outcome of every way in which one can end."""

import json
from datetime import timedelta
from typing import Any

import pytest

from support.world import at
from syncline import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.errors import ContractError
from syncline.policy.backoff import Backoff
from syncline.policy.outcome import (
    LAPSES_TO_FAIL,
    Cancelled,
    Ending,
    Failed,
    FailureRules,
    Interrupted,
    Lapsed,
    Outcome,
    PriorFailures,
    Raised,
    Released,
    Retry,
    Succeeded,
    Unrun,
    judge,
)
from syncline.sdk.page import Page

NOW = at("12:00")
BACKOFF = Backoff(base_seconds=5, max_seconds=900, jitter_factor=0)


class QuotaSpent(RateLimited):
    """An author's own kind of rate limit."""


class Careless(RateLimited):
    """An author's own error that forgets its parent."""

    def __init__(self, account: str) -> None:
        self.account = account


class Mute(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class MuteTimeout(Mute, TimeoutError):
    pass


@pytest.mark.parametrize(
    ("error", "error_class", "message"),
    [
        pytest.param(RateLimited("slow"), "RateLimited", "slow", id="rate limited"),
        pytest.param(QuotaSpent("slow"), "QuotaSpent", "slow", id="an author's subclass"),
        pytest.param(Careless("a-1"), "Careless", "a-1", id="one that forgot its parent"),
        pytest.param(Transient("502"), "Transient", "502", id="transient"),
        pytest.param(SyncError("hm"), "SyncError", "hm", id="any error of the sdk"),
        pytest.param(Transient(), "Transient", "", id="without a message"),
        pytest.param(ContractError("bad"), "ContractError", "bad", id="an invalid page"),
        pytest.param(ValueError("x"), "Unexpected", "ValueError: x", id="unexpected"),
        pytest.param(KeyError("k"), "Unexpected", "KeyError: 'k'", id="a lookup"),
        pytest.param(SystemExit(3), "Unexpected", "SystemExit: 3", id="not even an Exception"),
        pytest.param(TimeoutError(), "Timeout", "timed out", id="a timeout"),
        pytest.param(TimeoutError("x"), "Timeout", "TimeoutError: x", id="with a message"),
        pytest.param(
            Mute(), "Unexpected", "Mute: (its message cannot be shown)", id="one without words"
        ),
        pytest.param(
            MuteTimeout(),
            "Timeout",
            "MuteTimeout: (its message cannot be shown)",
            id="a timeout without words",
        ),
    ],
)
def test_most_errors_are_tried_again(error: BaseException, error_class: str, message: str) -> None:
    outcome = _judge(Raised(error), attempts=3)

    assert isinstance(outcome, Retry)
    assert outcome.error_class == error_class
    assert outcome.retry_after == NOW + timedelta(seconds=40)
    assert outcome.lapses == 0
    assert json.loads(outcome.error) == {
        "class": error_class,
        "message": message,
        "attempt": 4,
        "time": "2025-01-01T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(Permanent("gone"), "error", id="permanent"),
        pytest.param(Unauthorized("gone"), "needs_reauth", id="unauthorized"),
    ],
)
@pytest.mark.parametrize("max_attempts", [None, 1, 10])
def test_some_end_the_job_and_stop_the_connection(
    error: SyncError, status: str, max_attempts: int | None
) -> None:
    outcome = _judge(Raised(error), max_attempts=max_attempts)

    assert isinstance(outcome, Failed)
    assert (outcome.connection_status, outcome.reason) == (status, "gone")
    assert json.loads(outcome.error)["class"] == outcome.error_class == type(error).__name__


@pytest.mark.parametrize(
    ("attempts", "max_attempts", "ends"),
    [
        pytest.param(0, 1, True, id="the only attempt"),
        pytest.param(0, 2, False, id="the first of two"),
        pytest.param(1, 2, True, id="the second of two"),
        pytest.param(5, 2, True, id="a limit lowered meanwhile"),
        pytest.param(10**6, None, False, id="no limit"),
    ],
)
@pytest.mark.parametrize(
    "error",
    [RateLimited(), Transient(), TimeoutError(), ValueError(), ContractError()],
    ids=lambda error: type(error).__name__,
)
def test_the_last_failure_ends_the_job_and_spares_the_connection(
    error: Exception, attempts: int, max_attempts: int | None, ends: bool
) -> None:
    outcome = _judge(Raised(error), attempts=attempts, max_attempts=max_attempts)

    assert isinstance(outcome, Failed if ends else Retry)
    if isinstance(outcome, Failed):
        assert outcome.connection_status is None


@pytest.mark.parametrize(
    ("attempts", "asked", "waited", "noted"),
    [
        pytest.param(0, 60, 60, {"hint": 60.0, "hinted": True}, id="longer than the backoff"),
        pytest.param(0, 5, 5, {"hint": 5.0, "hinted": True}, id="as long as the backoff"),
        pytest.param(5, 60, 160, {"hint": 60.0, "hinted": False}, id="shorter than the backoff"),
        pytest.param(0, 10**9, 86_400, {"hint": 86_400.0, "hinted": True}, id="capped at a day"),
        pytest.param(0, None, 5, {}, id="none"),
        pytest.param(0, -1, 5, {}, id="garbage"),
        pytest.param(0, "60", 60, {"hint": 60, "hinted": True}, id="text"),
        pytest.param(0, "soon", 5, {}, id="text that is no number"),
    ],
)
def test_a_provider_can_ask_for_a_longer_wait(
    attempts: int, asked: Any, waited: float, noted: dict[str, Any]
) -> None:
    error = RateLimited("slow", retry_after_seconds=asked)

    outcome = _judge(Raised(error), attempts=attempts)

    assert isinstance(outcome, Retry)
    assert outcome.retry_after == NOW + timedelta(seconds=waited)
    record = json.loads(outcome.error)
    assert {key: record[key] for key in record if key.startswith("hint")} == noted


def test_the_roll_jitters_the_wait() -> None:
    rules = FailureRules(Backoff(100, 900, 0.1), None)

    outcome = judge(Raised(Transient()), rules, PriorFailures(), now=NOW, roll=0.5)

    assert isinstance(outcome, Retry)
    assert outcome.retry_after == NOW + timedelta(seconds=105)


@pytest.mark.parametrize(
    ("lapses_before", "waits"),
    [
        pytest.param(0, None, id="the first is eligible at once"),
        pytest.param(1, 20, id="the second waits"),
        pytest.param(2, 20, id="the third"),
        pytest.param(3, 20, id="the fourth"),
    ],
)
def test_a_lapsed_lease_goes_back_to_the_queue(lapses_before: int, waits: int | None) -> None:
    outcome = _judge(Lapsed(), attempts=2, lapses=lapses_before)

    assert isinstance(outcome, Retry)
    assert outcome.lapses == lapses_before + 1
    assert outcome.error_class == "LeaseLapsed"
    assert outcome.retry_after == (None if waits is None else NOW + timedelta(seconds=waits))
    assert f"({lapses_before + 1} in a row)" in json.loads(outcome.error)["message"]
    assert json.loads(outcome.error)["attempt"] == 3


@pytest.mark.parametrize("lapses_before", [LAPSES_TO_FAIL - 1, LAPSES_TO_FAIL, 100])
def test_the_fifth_lapse_in_a_row_is_the_last(lapses_before: int) -> None:
    outcome = _judge(Lapsed(), lapses=lapses_before)

    assert LAPSES_TO_FAIL == 5
    assert isinstance(outcome, Failed)
    assert outcome.connection_status == "error"
    assert outcome.lapses == lapses_before + 1
    assert outcome.reason == f"the worker's lease lapsed ({lapses_before + 1} in a row)"


@pytest.mark.parametrize("attempts", [0, 7, 10**6])
def test_other_endings_count_nothing(attempts: int) -> None:
    page = Page(next_cursor="1")

    assert _judge(page, attempts=attempts) == Succeeded(page)
    assert _judge(Interrupted(), attempts=attempts) == Released()
    assert _judge(Unrun(), attempts=attempts) == Cancelled()


def _judge(
    ending: Ending, *, attempts: int = 0, lapses: int = 0, max_attempts: int | None = None
) -> Outcome:
    rules = FailureRules(BACKOFF, max_attempts)
    return judge(ending, rules, PriorFailures(attempts, lapses), now=NOW, roll=0.5)


def test_a_secret_in_a_message_is_not_stored() -> None:
    error = RuntimeError("GET https://bob:hunter2@api.example/x failed: token=abc123")
    rules = FailureRules(BACKOFF, None)
    outcome = judge(Raised(error), rules, PriorFailures(), now=NOW, roll=0.0)
    assert isinstance(outcome, Retry)
    assert "hunter2" not in outcome.error
    assert "abc123" not in outcome.error
