"""The OpenAPI document, held against a real server by generated requests, with either key."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.api_server import ApiServer, running_api

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ENDLESS = {"/v1/signals/tail"}
EXAMPLES = 4


@pytest.fixture
def served(database_url: str) -> Iterator[ApiServer]:
    with running_api(database_url) as found:
        yield found


@pytest.mark.parametrize("who", ["operator", "tenant"])
def test_every_operation_keeps_to_the_document(served: ApiServer, who: str) -> None:
    document = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    headers = {"Authorization": f"Bearer {served.keys[who]}"}
    operations: list[Any] = [found.ok() for found in document.get_all_operations()]  # type: ignore[union-attr]
    operations = [one for one in operations if one.path not in ENDLESS]
    assert len(operations) >= 20

    answered: Counter[int] = Counter()
    for operation in operations:
        for mode in GenerationMode:
            hold(operation.as_strategy(generation_mode=mode), served, headers, answered)

    assert {200, 202, 204, 404, 422} <= answered.keys()
    assert answered[200] > 25


def hold(
    requests: Any, served: ApiServer, headers: dict[str, str], answered: "Counter[int]"
) -> None:
    """Send generated requests, some to ids that exist, and check the answers."""

    @given(case=requests, number=strategies.integers(0, 79))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any, number: int) -> None:
        checks = CHECKS
        for name, ids in served.ids.items():
            if name in (case.path_parameters or {}) and number < len(ids):
                case.path_parameters[name] = str(ids[number])
                # With an id that exists there may be nothing wrong with the request any more.
                checks = [check for check in CHECKS if check is not negative_data_rejection]
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        answered[case.call_and_validate(headers=headers, checks=checks).status_code] += 1

    with suppress(Unsatisfiable):  # what takes no parameters cannot be asked for wrongly
        send()
