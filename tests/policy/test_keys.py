"""How a key stands."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from syncline.model import ApiKey, KeyStatus, Scope
from syncline.policy.keys import key_status

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def key(*, life: timedelta | None, revoked_at: datetime | None = None) -> ApiKey:
    expires_at = NOON + life if life is not None else None
    return ApiKey(UUID(int=1), "ann", None, "x", Scope.ADMIN, NOON, expires_at, revoked_at)


@pytest.mark.parametrize(
    ("life", "age", "status"),
    [
        pytest.param(None, 4000 * DAY, KeyStatus.ACTIVE, id="never ends"),
        pytest.param(365 * DAY, 351 * DAY - SECOND, KeyStatus.ACTIVE, id="ends in more than 14 d"),
        pytest.param(365 * DAY, 351 * DAY, KeyStatus.EXPIRING, id="ends in 14 d"),
        pytest.param(365 * DAY, 365 * DAY - SECOND, KeyStatus.EXPIRING, id="ends in a second"),
        pytest.param(365 * DAY, 365 * DAY, KeyStatus.EXPIRED, id="ends now"),
        pytest.param(DAY, DAY / 2 - SECOND, KeyStatus.ACTIVE, id="first half of a short life"),
        pytest.param(DAY, DAY / 2, KeyStatus.EXPIRING, id="second half of a short life"),
    ],
)
def test_a_key_is_expiring_before_it_ends(
    life: timedelta | None, age: timedelta, status: KeyStatus
) -> None:
    assert key_status(key(life=life), NOON + age) == status


def test_a_revoked_key_is_that_whatever_its_end() -> None:
    assert key_status(key(life=DAY, revoked_at=NOON), NOON + 2 * DAY) == KeyStatus.REVOKED


def test_each_scope_includes_the_ones_before_it() -> None:
    order = [Scope.READ, Scope.OPERATE, Scope.ADMIN]

    for place, scope in enumerate(order):
        assert [scope.includes(other) for other in order] == [n <= place for n in range(3)]
