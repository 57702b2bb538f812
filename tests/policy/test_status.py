"""Pausing never loses `needs_reauth` or `error` and its reason."""

from typing import Any

import pytest

from syncline.model import ConnectionStatus
from syncline.policy.status import ACTIVE, StoredStatus, pause, reauthorise, resume
from syncline.text import reason_text

WHY = {"why": "token expired", "since": "2026-01-01T00:00:00Z", "evidence": {"status": 401}}
NEEDS_REAUTH = StoredStatus(ConnectionStatus.NEEDS_REAUTH, WHY)
ERROR = StoredStatus(ConnectionStatus.ERROR, WHY)


def paused(present: StoredStatus, why: str = "moving") -> StoredStatus:
    return pause(present, why=why, since="2026-01-02T00:00:00Z", by="ada")


@pytest.mark.parametrize("trouble", [NEEDS_REAUTH, ERROR])
def test_resuming_restores_the_trouble_and_its_reason(trouble: StoredStatus) -> None:
    assert resume(paused(trouble)) == trouble
    assert resume(paused(paused(trouble), "again")) == trouble
    assert resume(trouble) == ACTIVE


def test_an_active_connection_is_active_again() -> None:
    once = paused(ACTIVE)
    assert once.reason == {
        "why": "moving",
        "since": "2026-01-02T00:00:00Z",
        "evidence": None,
        "by": "ada",
    }
    assert resume(once) == ACTIVE


def test_new_credentials_end_needs_reauth_only() -> None:
    assert reauthorise(NEEDS_REAUTH) == ACTIVE
    assert reauthorise(paused(NEEDS_REAUTH)) == paused(ACTIVE)
    for kept in (ACTIVE, ERROR, paused(ERROR), paused(ACTIVE)):
        assert reauthorise(kept) == kept


@pytest.mark.parametrize(
    "reason",
    [
        None,
        "text",
        [1],
        {"before": "error"},
        {"before": {"status": "active"}},
        {"before": {"status": "revoked"}},
        {"before": {"status": ["error"]}},
    ],
)
def test_what_people_wrote_by_sql_restores_nothing_else(reason: Any) -> None:
    written = StoredStatus(ConnectionStatus.PAUSED, reason)
    assert resume(written) == ACTIVE
    assert reauthorise(written) == written


def test_the_line_names_the_trouble() -> None:
    assert reason_text(paused(ERROR).reason) == "moving (before: error, token expired)"
    assert reason_text(paused(ACTIVE).reason) == "moving"
    assert reason_text({"why": "moving", "before": {"status": "error", "reason": "full"}}) == (
        "moving (before: error, full)"
    )
