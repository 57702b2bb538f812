"""Every pattern of the source takes time that grows with its text, not with the square of it.

The patterns are collected from the syntax tree, so a new one fails here until its worst case is
written down beside the others.
"""

import ast
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import syncline
from syncline.api.dashboard.formats import json_tokens
from syncline.http.rate_limits import is_exhausted, wait_seconds
from syncline.redaction import Scrubber, mask_secrets, strip_addresses

SOURCE = Path(syncline.__file__).parent
INLINE = {"match", "search", "fullmatch", "sub", "subn", "findall", "finditer", "split"}
MB, KB = 1_000_000, 1_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDINGS = ("", "\0", "\n")
COMMON = ("a", "0", " ", "\n", '"', "\\", '\\"', "-", ".", ":", "/", "@", "=", "'", "é", "<", "(")


class Worst(NamedTuple):
    """The largest text that a pattern may be given, and what it is to be made of."""

    characters: int
    units: tuple[str, ...]
    beginning: str = ""


# Keyed by file and by the first characters of the pattern.
WORST_CASES = {
    ("api/dashboard/filters.py", "([0-9]{1,9}"): Worst(KB, ("1", "1.", "1.1 ")),
    ("api/dashboard/formats.py", '"[^"'): Worst(
        200 * KB, ('\\"', '"\\', '"a":', "1e+", "tru"), '"'
    ),
    ("api/problems.py", "[0-9a-f]{2}-"): Worst(64 * KB, ("0", "00-", "a")),
    ("api/protocol.py", "\\n\\r?"): Worst(64 * KB, ("\n", "\r", "\n\r", "\r\n")),
    ("api/representations.py", "(?:W/)"): Worst(64 * KB, ('"', "W/", 'W/"', '",')),
    ("api/representations.py", "gzip"): Worst(64 * KB, ("gzip", "gzip;", "gzip;q=0.", " "), "gzip"),
    ("api/routes/signals.py", "(?:([0-9]{1,17})"): Worst(8 * KB, ("1", "1.", "a")),
    ("cli/commands/connector.py", "[a-z][a-z0-9]*"): Worst(KB, ("a-", "-")),
    ("connectors/feed/connector.py", "https?://"): Worst(8 * KB, ("http", "https:/")),
    ("connectors/feed/documents.py", "[\0"): Worst(100 * KB, ("\0", "\ud800")),
    ("connectors/foreign/environments.py", "[a-z0-9](?:"): Worst(KB, ("a.", "-")),
    ("connectors/foreign/pages.py", "_sdc_"): Worst(64 * KB, ("_at", "a", "_a"), "_sdc_"),
    ("connectors/foreign/host.py", r"\b(CRIT"): Worst(200, ("ERROR ", "WARNIN ")),
    ("connectors/foreign/host.py", r"\b401"): Worst(40 * KB, ("401 Client ", "invalid_ ")),
    ("connectors/foreign/host.py", r"\b429"): Worst(40 * KB, ("429 Too ", "rate limit ")),
    ("connectors/foreign/host.py", r"\bFile"): Worst(40 * KB, ("File too ",)),
    ("connectors/foreign/host.py", r"\bMemory"): Worst(40 * KB, ("Memory", "Cannot allocate ")),
    ("connectors/foreign/host.py", "Config"): Worst(40 * KB, ("Config validation ",)),
    ("connectors/git/commits.py", "tree "): Worst(
        256 * KB, ("parent 0\n", "a", "gpgsig a\n", " \n", " "), "tree 0\n"
    ),
    ("connectors/git/commits.py", r"\n[ \t\r]*+\n"): Worst(256 * KB, ("\n ", "\n\t\r", "\n")),
    ("connectors/git/connector.py", "(?!-)"): Worst(255, ("@", ".a", "@{")),
    ("connectors/git/connector.py", "HEAD$"): Worst(255, ("HEAD", "refs")),
    ("connectors/imap/cursor.py", "([0-9]{1,10})"): Worst(64 * KB, ("1", "1:", "1,")),
    ("services/access.py", "(syncline_"): Worst(64 * KB, ("syncline_tenant_", "0"), "syncline_"),
    ("connectors/git/origin.py", "(?P<scheme>"): Worst(2 * KB, ("a:", "a@", "a.", "/"), "https://"),
    ("connectors/git/origin.py", "[A-Za-z0-9_]"): Worst(255, ("a.", "-")),
    ("connectors/git/repository.py", "[0-9a-f]{40}"): Worst(64 * KB, ("0",)),
    ("services/access.py", "sl(?:op"): Worst(64 * KB, ("slop_", "0"), "slop_"),
    ("services/access.py", "[0-9a-f]{64}"): Worst(64 * KB, ("0",)),
    ("http/rate_limits.py", r"(?:(\d++)h)"): Worst(200, ("1", "1.", "1h", "1m", "1s")),
    ("http/rate_limits.py", "(?:^|[;,"): Worst(200, (" r", "r ", "reset=", ";t = "), " r"),
    ("http/rate_limits.py", r"\s*+\d"): Worst(200, ("1", " ", "1."), "1."),
    ("http/messages.py", "charset"): Worst(KB, ("charset", "charset = ", "charset='a"), "charset="),
    ("http/messages.py", "<([^<>]"): Worst(64 * KB, ("<", "<a>", "<a>;", ">")),
    ("http/messages.py", r";\s*+(["): Worst(64 * KB, ("; ", ";a", ";a=", ';a="', '; a = "b"'), ";"),
    ("http/request.py", "[-!#$%&'*"): Worst(64 * KB, ("a", "~")),
    ("http/request.py", "(?:[!-~"): Worst(64 * KB, ("a ", "\t", "~"), "a"),
    ("http/url.py", "(?:([a-zA-Z]"): Worst(64 * KB, ("a", "a:", "//", "?", "#", "/?#"), "a:"),
    ("http/url.py", r"[\x00-"): Worst(64 * KB, ("\0", "a")),
    ("http/url.py", "[a-z0-9_](?:"): Worst(64 * KB, ("a.", "-", "a")),
    ("http/url.py", r"[0-9]++\."): Worst(64 * KB, ("1", "1.", "..")),
    ("http/url.py", "[0-9]{1,5}"): Worst(64 * KB, ("1",)),
    ("http/url.py", "[^!$-;=@"): Worst(64 * KB, (" ", "%", "a", "ü")),
    ("http/url.py", "[^!$-;=?"): Worst(64 * KB, (" ", "%", "a", "ü")),
    ("http/url.py", "[^A-Za-z0-9_.~-]"): Worst(64 * KB, (" ", "%", "a", "ü")),
    ("http/url.py", "/?(?:[A-Za"): Worst(64 * KB, ("a/", "a", "/", "a.")),
    ("keyring.py", "[A-Za-z0-9_.-]{1,64}"): Worst(64 * KB, ("a",)),
    ("policy/budgets.py", r"(\d{1,9}"): Worst(64 * KB, ("1", "1.", " ")),
    ("policy/budgets.py", r"\{(\w*)"): Worst(KB, ("{", "{a", "a")),
    ("policy/schedule.py", r"\d{1,9}"): Worst(64 * KB, ("1",)),
    ("policy/schedule.py", r'"\d{4}-'): Worst(64 * KB, ("1",), '"2026-01-01T00:00:00.'),
    ("redaction.py", r"://\S*+"): Worst(MB, ("://", "://:", "://a:b@")),
    ("redaction.py", "://[^:/@]*+:"): Worst(MB, ("://", "://a", "://a@")),
    ("redaction.py", "((?:password"): Worst(
        MB, ("token=", "token='", 'token="', "token ", 'token="\\', "basic ", "api_key"), "token="
    ),
    ("redaction.py", r"\b(basic\s++)"): Worst(MB, ("basic ", "basic a", "basic  ", "="), "basic "),
    ("redaction.py", r"\b((?:syncline_"): Worst(MB, ("slop_", "slop_" + "0" * 12 + "_", "0")),
    ("redaction.py", '("(?:access_token'): Worst(
        MB, ('"password"', '"password":"', '"password": ', '"password":"\\'), '"password":"'
    ),
    ("policy/audit.py", "passw|"): Worst(256 * KB, ("passw", "api_ke", "private-ke", "secre")),
    ("sdk/schema_patterns.py", r"\{(\d"): Worst(64 * KB, ("{", "{1", "{1,", "{1,2}")),
    ("sdk/page.py", "[\0"): Worst(MB, ("\0", "\ud800")),
    ("settings/checks.py", 'field "'): Worst(64 * KB, ('field "', 'field "a')),
    ("services/search.py", "[0-9a-f-]"): Worst(8 * KB, ("0", "-", "0-")),
    ("services/search.py", "([0-9a-f]{8})"): Worst(8 * KB, ("0", "00000000…", "00000000.")),
    ("store/embedded/binaries.py", r"\(Postgre"): Worst(KB, ("(PostgreSQL) ",)),
    ("store/embedded/upgrade.py", "checksum"): Worst(64 * KB, ("checksum version: ", " 0")),
    ("store/statements.py", ";|--"): Worst(
        64 * KB, ("-", "--", "'", "'a", '"', "$", "$a$", "$a$ $b$", "--\n")
    ),
    ("store/statements.py", "--"): Worst(64 * KB, ("-", "--", "-- a\n")),
    ("store/migrate.py", r"(\d{4})_"): Worst(KB, ("0", "_", "0000_")),
    ("store/migrate.py", "^-- req"): Worst(64 * KB, ("-- requires: ", "-- requires: 1\n")),
}
# Calls whose pattern is no constant, and why they are harmless.
DYNAMIC = {
    ("testing/conformance.py", "check.about"): "our own words, against an author's own error",
}


class Found(NamedTuple):
    """A pattern of the source, and how it is used."""

    path: str
    line: int
    pattern: "re.Pattern[Any]"
    methods: frozenset[str]

    @property
    def label(self) -> str:
        return f"{self.path}:{self.line}"


def collect() -> tuple[list[Found], list[tuple[str, str]]]:
    """Return every pattern of the source, and every call that takes one that is no constant."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    used = methods_by_name(trees.values())
    patterns, dynamic = [], []
    for path, tree in trees.items():
        name = path.relative_to(SOURCE).as_posix()
        constants = {
            target.id: statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        names = {id(value): key for key, value in constants.items()}
        for call in calls_of_re(tree):
            source = literal(call.args[0], constants)
            if source is None:
                dynamic.append((name, ast.unparse(call.args[0])))
                continue
            method = call.func.attr  # type: ignore[attr-defined]
            owner = names.get(id(call), "")
            methods = used.get(owner, {"search"}) if method == "compile" else {method}
            flags = eval_flags(call)
            found = re.compile(source, flags)
            patterns.append(Found(name, call.lineno, found, frozenset(methods)))
    return patterns, dynamic


def calls_of_re(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in INLINE | {"compile"}
        ):
            yield node


def methods_by_name(trees: Any) -> dict[str, set[str]]:
    used: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.attr in INLINE
            ):
                used.setdefault(node.value.id, set()).add(node.attr)
    return used


def literal(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    """Return the text of a pattern, with the constants of its module put in."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in constants:
        return literal(constants[node.id], constants)
    if isinstance(node, ast.JoinedStr):
        parts = [literal(part, constants) for part in node.values]
        return None if None in parts else "".join(parts)
    if isinstance(node, ast.FormattedValue):
        return literal(node.value, constants)
    return None


def eval_flags(call: ast.Call) -> int:
    flags = 0
    for argument in [*call.args[1:], *(keyword.value for keyword in call.keywords)]:
        for node in ast.walk(argument):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("re."):
                flags |= getattr(re, node.attr)
    return flags


PATTERNS, DYNAMIC_CALLS = collect()


def worst_of(found: Found) -> Worst | None:
    text = found.pattern.pattern
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    return next(
        (
            worst
            for (path, start), worst in WORST_CASES.items()
            if path == found.path and (text.startswith((start, "(?P<key>" + start)))
        ),
        None,
    )


def test_every_pattern_has_a_worst_case() -> None:
    missing = [
        f"{found.label} {found.pattern.pattern!r}" for found in PATTERNS if not worst_of(found)
    ]
    assert not missing, "write down the worst case of these in WORST_CASES"
    assert len(PATTERNS) > 30
    assert set(DYNAMIC_CALLS) <= set(DYNAMIC), "a pattern must be a constant"


def test_no_worst_case_outlives_its_pattern() -> None:
    known = {id(worst_of(found)) for found in PATTERNS}
    assert [key for key, worst in WORST_CASES.items() if id(worst) not in known] == []


def attacks(worst: Worst) -> Iterator[Callable[[int], str]]:
    """Yield what makes texts of any length: a unit over and over, with several ends."""
    for unit in dict.fromkeys((*worst.units, *COMMON)):
        for ending in ENDINGS:
            yield (
                lambda n, unit=unit, ending=ending: (  # type: ignore[misc]
                    (worst.beginning + unit * (n // len(unit)))[: max(n - 1, 1)] + ending
                )
            )


def use(found: Found, method: str) -> Callable[[str], object]:
    def apply(text: str) -> object:
        subject: Any = text
        if isinstance(found.pattern.pattern, bytes):
            subject = text.encode("utf-8", "replace")
        if method in ("sub", "subn"):
            return found.pattern.sub("" if isinstance(subject, str) else b"", subject)
        if method == "finditer":
            return sum(1 for _ in found.pattern.finditer(subject))
        return getattr(found.pattern, method)(subject)

    return apply


def seconds(function: Callable[[str], object], text: str, tries: int = 3) -> float:
    """Return the least processor time of several tries: others may use this machine too."""
    best = float("inf")
    for _ in range(tries):
        began = time.process_time()
        function(text)
        best = min(best, time.process_time() - began)
        if best < 0.02:
            break
    return best


def assert_linear(function: Callable[[str], object], make: Callable[[int], str], size: int) -> None:
    """Four times the text may take ten times the time; the square would take sixteen."""
    longer = seconds(function, make(size))
    if longer < 0.02:
        return  # too short to compare, and harmless
    shorter = seconds(function, make(size // 4))
    assert longer < max(10 * shorter, 0.02), f"{make(40)!r}…: {shorter:.3f} s, then {longer:.3f} s"


@pytest.mark.parametrize("found", PATTERNS, ids=lambda found: found.label)
def test_a_pattern_is_linear(found: Found) -> None:
    worst = worst_of(found)
    assert worst is not None
    for method in found.methods:
        function = use(found, method)
        for attack in attacks(worst):
            assert_linear(function, attack, min(worst.characters, 16 * KB))


@pytest.mark.security
@pytest.mark.parametrize("found", PATTERNS, ids=lambda found: found.label)
def test_a_pattern_is_linear_at_its_largest_size(found: Found) -> None:
    worst = worst_of(found)
    assert worst is not None
    for method in found.methods:
        function = use(found, method)
        for attack in attacks(worst):
            assert_linear(function, attack, worst.characters)


SCRUB = Scrubber(["hunter2-hunter2", "aaaa", "0000"])
FUNCTIONS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "mask_secrets": (
        mask_secrets,
        ("://:", "token='", 'token="\\', "basic a ", "password=a ", "://a:b@c "),
    ),
    "Scrubber": (SCRUB, ("aaaa", "aaa", "://:", "YWFhY", "hunter2-hunter")),
    "strip_addresses": (
        lambda text: strip_addresses(text, MB),
        ("://", "://@", "?", "a ", "://a@? "),
    ),
    "json_tokens": (
        lambda text: list(json_tokens({"a": text})),
        ("\\", '"', '\\"', "1e", "\0", "://:"),
    ),
    "wait_seconds": (
        lambda text: wait_seconds({"retry-after": text, "date": text, "ratelimit": text}, now=NOW),
        ("1", "1.", " ", "(", "Mon, "),
    ),
    "is_exhausted": (lambda text: is_exhausted({"ratelimit": text}), ("r ", " r", "1")),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_uses_patterns_is_linear(name: str) -> None:
    function, units = FUNCTIONS[name]
    for attack in attacks(Worst(0, units)):
        assert_linear(function, attack, 32 * KB)


def test_a_quadratic_pattern_would_be_found() -> None:
    pattern = re.compile(r"(://[^\s:/@]*:)\S*@")
    with pytest.raises(AssertionError, match="then"):
        assert_linear(lambda text: pattern.sub("", text), lambda n: "://:" * (n // 4), 16 * KB)
