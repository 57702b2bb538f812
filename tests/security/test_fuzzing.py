"""Generated requests, with an operator's key, a tenant's and none: none is slow, none fails.

Requests come from the OpenAPI document, as it wants them and as it does not; the pages, which are
not in it, get the same for their queries and forms. The examples are the same at every run.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx2
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from support.api_server import ApiServer, running_api
from support.routes import body_names, methods_of, query_names
from syncline.api.auth import COOKIE, Principal

pytestmark = [pytest.mark.security, pytest.mark.timeout(280)]

ENDLESS = {"/v1/signals/tail"}
EXAMPLES = 30
SLOW_SECONDS = 2.0
# What has broken pages of others: numbers, times, markup, bytes and lengths that nobody expects.
HOSTILE = [
    "", "0", "-1", "9" * 30, "1e999", "NaN", "null", "\0", "\n", "\r\nX: y", "%", "%00", "%s%n",
    "'; DROP TABLE connections; --", "{{7*7}}", "${7*7}", "<script>alert(1)</script>", '"><b',
    "../../etc/passwd", "//example.org", "\\example.org", "javascript:alert(1)", "a" * 5000,
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00", "2024-02-30", "\u202e", "\ud7ff",
    "\U0001f600", "\u0000a", "[]", "{}", "*", "_", "%_%", "start", "now", "1.2", "0" * 32,
    "00000000-0000-0000-0000-000000000000", "active", "failed", "sync", "pause", "/connections?x=1",
]  # fmt: skip
ACTIONS = ["sync", "full", "pause", "resume", "retry", "cancel"]
WHO = ["operator", "tenant", "nobody"]
steady = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def served(database_url: str) -> Iterator[ApiServer]:
    with running_api(database_url) as found:
        yield found


def headers_of(served: ApiServer, who: str) -> dict[str, str]:
    key = served.keys.get(who)
    return {} if key is None else {"Authorization": f"Bearer {key}"}


class Answers:
    """Counts what was answered, and keeps what must not have been."""

    def __init__(self) -> None:
        self.counted: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0

    def add(self, asked: str, send: Callable[[], Any]) -> None:
        """Send a request; one that is slow is sent again, as another process may have been."""
        for _ in range(3):
            answer = send()
            seconds = answer.elapsed if isinstance(answer.elapsed, float) else 0.0
            seconds = seconds or answer.elapsed.total_seconds()
            if seconds < SLOW_SECONDS:
                break
        else:
            self.wrong.append(f"{asked}: {seconds:.1f} s")
        self.counted[answer.status_code] += 1
        self.slowest = max(self.slowest, seconds)
        if answer.status_code >= 500:
            self.wrong.append(f"{asked}: {answer.status_code}")


@pytest.mark.parametrize("who", WHO)
def test_no_generated_request_to_the_api_is_slow_or_fails(served: ApiServer, who: str) -> None:
    document = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations: list[Any] = [found.ok() for found in document.get_all_operations()]  # type: ignore[union-attr]
    answers = Answers()

    for operation in operations:
        if operation.path in ENDLESS:
            continue
        for mode in GenerationMode:
            ask(operation.as_strategy(generation_mode=mode), served, who, answers)

    assert answers.wrong == []
    if who == "nobody":
        assert set(answers.counted) <= {400, 401, 405, 413, 414}
    else:
        assert {200, 202, 204, 404, 422} <= answers.counted.keys()
    print(f"{who}: {answers.counted.total()} requests, the slowest {answers.slowest:.3f} s")


def ask(requests: Any, served: ApiServer, who: str, answers: Answers) -> None:
    """Send generated requests, some to ids that exist."""

    @given(case=requests, number=strategies.integers(0, 79))
    @steady
    def send(case: Any, number: int) -> None:
        for name, ids in served.ids.items():
            if name in (case.path_parameters or {}) and number < len(ids):
                case.path_parameters[name] = str(ids[number])
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        headers = headers_of(served, who)
        answers.add(f"{case.method} {case.path}", lambda: case.call(headers=headers))

    with suppress(Unsatisfiable):  # what takes no parameters cannot be asked for wrongly
        send()


@pytest.mark.parametrize("who", WHO)
def test_no_generated_request_to_the_pages_is_slow_or_fails(served: ApiServer, who: str) -> None:
    answers = Answers()
    with httpx2.Client(base_url=served.url, timeout=30) as client:
        csrf = sign_in(client, served, who)
        for route in served.routes:
            if route.path.startswith("/v1/") or route.path in ("/events", "/logout"):
                continue
            for method in methods_of(route):
                names = query_names(route) if method == "GET" else body_names(route)
                browse(client, (method, route.path), names, csrf, served, answers)

    assert answers.wrong == []
    expected = {"operator": {200, 303, 404, 422}, "tenant": {200, 403}, "nobody": {200, 303}}
    assert expected[who] <= answers.counted.keys()
    print(f"{who}: {answers.counted.total()} requests, the slowest {answers.slowest:.3f} s")


def sign_in(client: httpx2.Client, served: ApiServer, who: str) -> str:
    """Return what the forms of a session carry."""
    if who not in served.keys:
        return ""
    client.post("/login", data={"key": served.keys[who]})
    return Principal("", session=client.cookies[COOKIE]).csrf_token


def browse(
    client: httpx2.Client,
    target: tuple[str, str],
    names: list[str],
    csrf: str,
    served: ApiServer,
    answers: Answers,
) -> None:
    """Send queries or forms with some of the names, each value as strange as it may be."""
    method, path = target
    known = [str(id_) for ids in served.ids.values() for id_ in ids[:3]]
    usual = strategies.text(strategies.characters(codec="utf-8"), max_size=40)
    value = strategies.sampled_from([*HOSTILE, *known]) | usual
    chosen: Any = strategies.just({})
    if names:
        chosen = strategies.dictionaries(strategies.sampled_from(names), value)

    places = strategies.fixed_dictionaries(
        {
            "connection_id": strategies.sampled_from(known) | value,
            "job_id": strategies.sampled_from(known) | value,
            "action": strategies.sampled_from(ACTIONS) | value,
        }
    )

    @given(values=chosen, places=places)
    @steady
    def send(values: dict[str, str], places: dict[str, str]) -> None:
        address = path.format(**{n: quote(text, safe="") or "x" for n, text in places.items()})
        options: dict[str, Any] = {"params": values}
        if method != "GET":
            options = {"data": {**values, **({"csrf": csrf} if "csrf" in names else {})}}
        answers.add(f"{method} {path}", lambda: client.request(method, address, **options))

    send()


# Where parsers of JSON, numbers and text break: each becomes a field's value, as it stands.
HOSTILE_JSON = [
    "1e400", "-1e400", "NaN", "Infinity", "9" * 4_400, "-" + "9" * 4_400, "0." + "0" * 4_400 + "1",
    "1e-400", '"\\ud800"', '"\\u0000"', '"\\udfff\\ud800"', '"' + "a" * 70_000 + '"',
    "[" * 60 + "]" * 60,
    '{"a":' * 60 + "1" + "}" * 60, "[" * 5_000, "{" * 5_000, '"\\', '"', "", "tru", "[1,]", "{,}",
    '{"a":1,"a":2}', '{"":""}', "[" + "0," * 100_000 + "0]", "\ufeff1", "0x10", "1_000", "'a'",
    '"\\x00"', "\x00", "/* */1", '{"__proto__":{}}', '{"$where":"1"}', "true", "null", "-0", "1.0",
]  # fmt: skip


NEW = '"provider_slug": "github", "tenant_id": "acme"'
# By the name of the route: bodies in which one value is hostile.
TEMPLATES = {
    "create_connection": [
        f'{{{NEW}, "external_id": %s}}', f'{{{NEW}, "external_id": "y", "config": {{"a": %s}}}}',
        f'{{{NEW}, "external_id": "z", "credentials": %s}}', f"{{{NEW}, %s: 1}}",
        '{"provider_slug": %s, "external_id": "x", "tenant_id": "acme"}',
        f'{{{NEW}, "external_id": "i", "interval_seconds": %s}}',
    ],
    "create_connections": ["%s", '{"connections": %s}', f'{{"connections": [{{{NEW}, %s: "x"}}]}}'],
    "edit_connection": ['{"config": %s}', '{"cursor": %s}', '{"interval_seconds": %s}'],
    "pause_connection": ['{"reason": %s}'],
    "sync_connection": ['{"priority": %s}', '{"job_type": %s}'],
    "create_key": ['{"name": %s}', '{"name": "n", "expires_in_days": %s}'],
    "set_credentials": ['{"credentials": %s}', '{"credentials": {"t": %s}}'],
}  # fmt: skip


@pytest.mark.parametrize("who", WHO)
def test_no_hostile_json_is_slow_or_fails(served: ApiServer, who: str) -> None:
    places = {name: ids[0] for name, ids in served.ids.items()}
    answers = Answers()
    with httpx2.Client(base_url=served.url, headers=headers_of(served, who), timeout=30) as client:
        for route in served.routes:
            for method in methods_of(route) - {"GET"}:
                if not route.path.startswith("/v1/") or not body_names(route):
                    continue
                path = route.path.format(**places)
                for template, value in product(TEMPLATES[route.name], HOSTILE_JSON):
                    send(client, method, path, template % value, answers)

    assert answers.wrong == []
    assert answers.counted.total() >= 600
    print(f"{who}: {answers.counted.total()} requests, the slowest {answers.slowest:.3f} s")


def send(client: httpx2.Client, method: str, path: str, body: str, answers: Answers) -> None:
    content, kind = body.encode("utf-8", "surrogatepass"), {"content-type": "application/json"}
    answers.add(
        f"{method} {path} {body[:100]}",
        lambda: client.request(method, path, content=content, headers=kind),
    )
