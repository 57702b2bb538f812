"""Which providers a tenant's key may connect."""

import pytest

from syncline.policy.tenant_providers import ProviderFacts, why_refused

ORDINARY = ProviderFacts(is_known=True)
LOCAL = ProviderFacts(is_known=True, is_local=True)
UNKNOWN = ProviderFacts(is_known=False)
UNCONFINED = ProviderFacts(is_known=True, is_local=True, cannot_confine="there is no sandbox")


@pytest.mark.parametrize(
    ("facts", "named", "is_allowed"),
    [
        pytest.param(ORDINARY, None, True, id="ordinary"),
        pytest.param(LOCAL, None, False, id="local"),
        pytest.param(UNKNOWN, None, False, id="unknown"),
        pytest.param(UNCONFINED, None, False, id="unconfined"),
        pytest.param(ORDINARY, [], False, id="ordinary, none named"),
        pytest.param(ORDINARY, ["y"], False, id="ordinary, another named"),
        pytest.param(ORDINARY, ["x"], True, id="ordinary, named"),
        pytest.param(LOCAL, ["x"], True, id="local, named"),
        pytest.param(UNKNOWN, ["x"], True, id="unknown, named"),
        pytest.param(UNCONFINED, ["x"], False, id="unconfined, named"),
    ],
)
def test_what_tenants_may_connect(
    facts: ProviderFacts, named: list[str] | None, is_allowed: bool
) -> None:
    reason = why_refused("x", facts, named)

    assert (reason is None) == is_allowed
    if reason is not None:
        assert "'x'" in reason
        assert "api.tenant_providers" in reason
