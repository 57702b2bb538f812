"""The settings: defaults, bounds, where they come from, and one line for a bad one."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from syncline import Settings
from syncline.errors import SettingsError
from syncline.policy.backoff import Backoff

DEFAULTS: dict[str, Any] = {
    "database_url": None,
    "schema": "syncline",
    "portable": False,
    "pgbouncer": False,
    "listen_url": None,
    "secret_keys": None,
    "pool_size": 10,
    "connectors": [],
    "scheduler.tick_interval_seconds": 60,
    "scheduler.lookahead_seconds": None,
    "scheduler.default_interval_seconds": 900,
    "scheduler.jitter_pct_min": Decimal(0),
    "scheduler.jitter_pct_max": Decimal("0.2"),
    "scheduler.max_overridden_interval_seconds": 86_400,
    "scheduler.batch_size": 1000,
    "executor.concurrency": "auto",
    "executor.poll_interval_seconds": 0.5,
    "executor.lease_seconds": 30,
    "executor.max_run_seconds": 300,
    "executor.max_attempts": None,
    "executor.single_flight": "connection",
    "executor.shutdown_grace_seconds": 30,
    "executor.max_payload_bytes": 1_000_000,
    "executor.max_cursor_bytes": 64_000,
    "executor.max_page_signals": 100_000,
    "executor.max_page_bytes": 256_000_000,
    "rate_limit.base_seconds": 5,
    "rate_limit.max_seconds": 900,
    "rate_limit.jitter_factor": 0.1,
    "rate_limit.providers": {},
    "budgets": [],
    "fairness.enabled": True,
    "breaker.failing_share": 0.8,
    "breaker.attempts": 20,
    "breaker.connections": 5,
    "breaker.window_seconds": 60,
    "breaker.first_probe_seconds": 30,
    "breaker.longest_probe_seconds": 900,
    "foreign.unsandboxed": [],
    "http.allow_private": [],
    "http.timeout_seconds": 60,
    "http.connect_timeout_seconds": 10,
    "http.max_response_bytes": 64_000_000,
    "http.max_json_values": 1_000_000,
    "http.connections_per_origin": 64,
    "http.max_redirects": 5,
    "git.local_roots": [],
    "git.schemes": [],
    "git.known_hosts": None,
    "api.host": "127.0.0.1",
    "api.port": 8080,
    "api.hosts": [],
    "api.tenant_providers": None,
    "api.key_days": 365,
    "api.trusted_proxies": [],
    "api.requests_per_second": 100,
    "api.burst": 1000,
    "api.address_requests_per_second": 50,
    "api.address_burst": 500,
    "api.failed_logins_per_minute": 10,
    "api.concurrent_requests": None,
    "api.concurrent_streams": 20,
    "api.max_clients": 500,
    "api.max_clients_per_address": 100,
    "api.max_connections_per_tenant": None,
    "api.max_stored_bytes_per_tenant": None,
    "retention.jobs_days": 14,
    "retention.empty_jobs_hours": 24,
    "retention.signals_days": None,
    "retention.audit_days": 400,
    "retention.first_round_seconds": 60,
    "telemetry.tenant_label": True,
}

# Each numeric setting: the lowest and highest good values, and bad ones just outside.
BOUNDS: dict[str, tuple[list[Any], list[Any]]] = {
    "pool_size": ([2, 500], [1, 501]),
    "scheduler.tick_interval_seconds": ([1, 300], [0.999, 300.001]),
    "scheduler.lookahead_seconds": ([0, 3600], [-0.001, 3600.001]),
    "scheduler.default_interval_seconds": ([60, 86_400], [59, 86_401]),
    "scheduler.jitter_pct_min": ([0, "0.2"], ["-0.001", "0.201", 1]),
    "scheduler.jitter_pct_max": ([0, "0.999"], ["-0.001", 1, "1.5"]),
    "scheduler.max_overridden_interval_seconds": ([900, 31_536_000], [59, 31_536_001]),
    "scheduler.batch_size": ([1, 10_000], [0, 10_001]),
    "executor.concurrency": ([1, 10_000], [0, 10_001]),
    "executor.poll_interval_seconds": ([0.001, 60], [0, 60.001]),
    "executor.lease_seconds": ([3, 3600], [2.999, 3600.001]),
    "executor.max_run_seconds": ([1, 86_400], [0.999, 86_400.001]),
    "executor.max_attempts": ([1, 10**6], [0, -1]),
    "executor.shutdown_grace_seconds": ([0, 3600], [-0.001, 3600.001]),
    "executor.max_payload_bytes": ([1], [0]),
    "api.requests_per_second": ([0.001, 10**6], [0, 10**6 + 1]),
    "api.burst": ([1, 10**6], [0, 10**6 + 1]),
    "api.address_requests_per_second": ([0.001, 10**6], [0, 10**6 + 1]),
    "api.address_burst": ([1, 10**6], [0, 10**6 + 1]),
    "api.failed_logins_per_minute": ([1, 10_000], [0, 10_001]),
    "api.concurrent_requests": ([1, 500], [0, 501]),
    "api.concurrent_streams": ([1, 10_000], [0, 10_001]),
    "api.max_clients": ([1, 100_000], [0, 100_001]),
    "api.max_clients_per_address": ([1, 100_000], [0, 100_001]),
    "api.max_connections_per_tenant": ([1, 10**9], [0]),
    "api.max_stored_bytes_per_tenant": ([1, 10**15], [0]),
    "executor.max_cursor_bytes": ([1], [0]),
    "executor.max_page_signals": ([1], [0]),
    "executor.max_page_bytes": ([1], [0]),
    "rate_limit.base_seconds": ([0.001, 86_400], [0, 86_400.001]),
    "rate_limit.max_seconds": ([0.001, 604_800], [0, 604_800.001]),
    "rate_limit.jitter_factor": ([0, 10], [-0.001, 10.001]),
    "rate_limit.providers.github.base_seconds": ([0.001, 86_400], [0, 86_400.001]),
    "rate_limit.providers.github.max_seconds": ([0.001, 604_800], [0, 604_800.001]),
    "rate_limit.providers.github.jitter_factor": ([0, 10], [-0.001, 10.001]),
    "breaker.failing_share": ([0.001, 1], [0, 1.001]),
    "breaker.attempts": ([1, 10**6], [0, 10**6 + 1]),
    "breaker.connections": ([1, 5], [0, 6]),
    "breaker.window_seconds": ([5, 3600], [4.999, 3600.001]),
    "breaker.first_probe_seconds": ([1, 900], [0.999, 3600.001]),
    "breaker.longest_probe_seconds": ([30, 86_400], [0.999, 86_400.001]),
    "http.timeout_seconds": ([0.001, 3600], [0, 3600.001]),
    "http.connect_timeout_seconds": ([0.001, 300], [0, 300.001]),
    "http.max_response_bytes": ([1], [0]),
    "http.max_json_values": ([1], [0]),
    "http.connections_per_origin": ([1, 10_000], [0, 10_001]),
    "http.max_redirects": ([0, 5], [-1, 6]),
    "api.port": ([0, 65_535], [-1, 65_536]),
    "api.key_days": ([1, 3650], [0, 3651]),
    "retention.jobs_days": ([0.005, 36_500], [0, 0.004, 36_501]),
    "retention.empty_jobs_hours": ([0.12, 876_000], [0, 0.11, 876_001]),
    "retention.audit_days": ([0.005, 36_500], [0, 0.004, 36_501]),
    "retention.signals_days": ([0.005, 36_500], [0, 0.004, 36_501]),
    "retention.first_round_seconds": ([0, 3600], [-1, 3601]),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_with(name: str, value: Any) -> Settings:
    """Return settings with one, named like `scheduler.batch_size`, given as an argument."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return Settings(**value)


def value_of(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def refusal(name: str, value: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        settings_with(name, value)
    return str(refused.value)


def environment_name(name: str) -> str:
    return "SYNCLINE_" + name.upper().replace(".", "__")


def test_defaults() -> None:
    settings = Settings()

    assert {name: value_of(settings, name) for name in DEFAULTS} == DEFAULTS


def test_every_setting_is_in_the_tables_above() -> None:
    def names(model: type[BaseModel], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for name, field in model.model_fields.items():
            inner: Any = field.annotation
            nested = isinstance(inner, type) and issubclass(inner, BaseModel)
            found |= names(inner, f"{prefix}{name}.") if nested else {prefix + name}
        return found

    assert names(Settings) == set(DEFAULTS)
    numeric = {
        name
        for name, default in DEFAULTS.items()
        if isinstance(default, int | float | Decimal) and not isinstance(default, bool)
    }
    assert numeric <= set(BOUNDS)


def test_a_value_on_its_bound_is_taken() -> None:
    for name, (good, _) in BOUNDS.items():
        expected = [Decimal(value) if "pct" in name else value for value in good]

        assert [value_of(settings_with(name, value), name) for value in good] == expected, name


def test_a_value_outside_is_refused_in_one_line_with_its_name_value_and_bounds() -> None:
    for name, value in [(name, value) for name, (_, bad) in BOUNDS.items() for value in bad]:
        line = refusal(name, value)

        assert "\n" not in line
        told = (f"{name} is {value!r}; it must be ", f"{name} is {value}; it must be ")
        assert line.startswith(told)
        assert any(character.isdigit() for character in line.partition("it must be ")[2])


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (
            "scheduler.tick_interval_seconds",
            0,
            "scheduler.tick_interval_seconds is 0; it must be a number, at least 1 and at most 300",
        ),
        (
            "scheduler.tick_interval_seconds",
            "soon",
            "scheduler.tick_interval_seconds is 'soon'; "
            "it must be a number, at least 1 and at most 300",
        ),
        (
            "executor.concurrency",
            1.5,
            'executor.concurrency is 1.5; it must be "auto" or an integer from 1 to 10000',
        ),
        (
            "executor.concurrency",
            "automatic",
            "executor.concurrency is 'automatic'; "
            'it must be "auto" or an integer from 1 to 10000',
        ),
        (
            "executor.concurrency",
            True,
            'executor.concurrency is True; it must be "auto" or an integer from 1 to 10000',
        ),
        (
            "executor.max_attempts",
            0,
            "executor.max_attempts is 0; it must be an integer, at least 1",
        ),
        (
            "scheduler.default_interval_seconds",
            30,
            "scheduler.default_interval_seconds is 30; "
            "it must be from 60 to max_overridden_interval_seconds (86400)",
        ),
        (
            "scheduler.max_overridden_interval_seconds",
            600,
            "scheduler.default_interval_seconds is 900; "
            "it must be from 60 to max_overridden_interval_seconds (600)",
        ),
        (
            "scheduler.jitter_pct_min",
            0.5,
            "scheduler.jitter_pct_min is 0.5; it must be from 0 to jitter_pct_max (0.2)",
        ),
        (
            "rate_limit.providers.github.base_seconds",
            -1,
            "rate_limit.providers.github.base_seconds is -1; "
            "it must be a number, more than 0 and at most 86400",
        ),
        (
            "executor.single_flight",
            "both",
            "executor.single_flight is 'both'; input should be 'connection' or 'job_type'",
        ),
        (
            "portable",
            "perhaps",
            "portable is 'perhaps'; input should be a valid boolean, unable to interpret input",
        ),
        ("schema", "", "schema is ''; it must be printable text of 1 to 63 bytes"),
        ("schema", "a\nb", r"schema is 'a\nb'; it must be printable text of 1 to 63 bytes"),
        ("schema", "pg_x", "schema is 'pg_x'; names that begin with pg_ are reserved for Postgres"),
        ("api.host", "", "api.host is ''; string should have at least 1 character"),
        ("api", 8080, "api is 8080; input should be a valid dictionary or instance of ApiSettings"),
        ("pool_sise", 5, "pool_sise: there is no such setting"),
        ("scheduler.tick", 5, "scheduler.tick: there is no such setting"),
        (
            "rate_limit.providers.github.base",
            5,
            "rate_limit.providers.github.base: there is no such setting",
        ),
    ],
)
def test_a_refusal_reads_like_this(name: str, value: Any, line: str) -> None:
    assert refusal(name, value) == line


@pytest.mark.parametrize(
    "name",
    ["scheduler.tick_interval_seconds", "scheduler.jitter_pct_max", "rate_limit.max_seconds"],
)
def test_what_is_no_number_is_refused(name: str) -> None:
    values: tuple[object, ...] = (float("nan"), float("inf"), "nan", "Infinity", None, [], {})
    for value in values:
        assert refusal(name, value).startswith(f"{name} is {value!r}; it must be a number, ")


def test_a_long_value_is_cut_short() -> None:
    assert len(refusal("schema", "x" * 10_000)) < 200


@pytest.mark.parametrize("schema", ["x", "My Schema", 'a"b', "x" * 63, "é" * 31, "схема", "a;--"])
def test_a_schema_may_have_any_name_that_postgres_keeps(schema: str) -> None:
    assert Settings(schema=schema).schema == schema


@pytest.mark.parametrize("schema", ["x" * 64, "é" * 32, "a\0", "\ud800"], ids=ascii)
def test_a_schema_has_no_name_that_postgres_would_change(schema: str) -> None:
    assert "it must be printable text of 1 to 63 bytes" in refusal("schema", schema)


def test_jitter_is_kept_in_decimal() -> None:
    scheduler = Settings(scheduler={"jitter_pct_min": 0.07, "jitter_pct_max": 0.3}).scheduler

    assert (scheduler.jitter_pct_min, scheduler.jitter_pct_max) == (Decimal("0.07"), Decimal("0.3"))
    assert scheduler.rules.jitter_pct_min * 900 == 63


@pytest.mark.parametrize(
    ("tick", "lookahead", "seconds"),
    [(60, None, 60), (5, None, 60), (300, None, 300), (60, 0, 0), (60, 120, 120)],
)
def test_the_lookahead_is_a_minute_or_the_tick_unless_set(
    tick: float, lookahead: float | None, seconds: float
) -> None:
    scheduler = Settings(
        scheduler={"tick_interval_seconds": tick, "lookahead_seconds": lookahead}
    ).scheduler

    assert scheduler.lookahead.total_seconds() == seconds


def test_a_provider_overrides_what_it_names_and_inherits_the_rest() -> None:
    rate_limit = Settings(
        rate_limit={"base_seconds": 7, "providers": {"github": {"jitter_factor": 0}}}
    ).rate_limit

    assert rate_limit.backoff("github") == Backoff(7, 900, 0)
    assert rate_limit.backoff("another") == Backoff(7, 900, 0.1)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SYNCLINE_DATABASE_URL", "postgresql://h/d", "database_url", "postgresql://h/d"),
        ("SYNCLINE_SCHEDULER__TICK_INTERVAL_SECONDS", "5", "scheduler.tick_interval_seconds", 5),
        ("SYNCLINE_SCHEDULER__JITTER_PCT_MAX", "0.07", "scheduler.jitter_pct_max", Decimal("0.07")),
        ("SYNCLINE_EXECUTOR__SINGLE_FLIGHT", "job_type", "executor.single_flight", "job_type"),
        ("SYNCLINE_PORTABLE", "true", "portable", True),
        ("SYNCLINE_PORTABLE", "0", "portable", False),
        (
            "SYNCLINE_RATE_LIMIT__PROVIDERS__GITHUB__BASE_SECONDS",
            "9",
            "rate_limit.providers.github.base_seconds",
            9,
        ),
        ("SYNCLINE_SCHEDULER", '{"batch_size": 7}', "scheduler.batch_size", 7),
        ("SYNCLINE_CONNECTORS", "one, two.three", "connectors", ["one", "two.three"]),
        ("syncline_schema", "other", "schema", "other"),
    ],
)
def test_the_environment_sets(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: Any
) -> None:
    monkeypatch.setenv(variable, text)

    assert value_of(Settings(), name) == value


def test_every_number_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, ((good, *_), (bad, *_)) in BOUNDS.items():
        with monkeypatch.context() as patch:
            patch.setenv(environment_name(name), str(good))
            assert float(value_of(Settings(), name)) == float(good)

            patch.setenv(environment_name(name), str(bad))
            with pytest.raises(SettingsError, match=rf"^{name} is '?{bad}'?; it must be "):
                Settings()


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        ("SYNCLINE_SCHEDULER__TICK", "5", "scheduler.tick: there is no such setting"),
        (
            "SYNCLINE_SHEDULER__BATCH_SIZE",
            "5",
            "SYNCLINE_SHEDULER__BATCH_SIZE: there is no such setting",
        ),
        (
            "SYNCLINE_SCHEDULER",
            "fast",
            "scheduler cannot be parsed; SYNCLINE_SCHEDULER… must be JSON",
        ),
        (
            "SYNCLINE_RATE_LIMIT__PROVIDERS",
            "github",
            "rate_limit cannot be parsed; SYNCLINE_RATE_LIMIT… must be JSON",
        ),
    ],
)
def test_a_bad_environment_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, line: str
) -> None:
    monkeypatch.setenv(variable, text)

    with pytest.raises(SettingsError) as refused:
        Settings()

    assert str(refused.value) == line


@pytest.mark.parametrize("variable", ["SYNCLINE_HOME", "SYNCLINE_PORT", "SYNCLINE_SERVICE_HOST"])
def test_what_containers_put_into_the_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:80")

    assert Settings() == Settings()


def test_an_empty_variable_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_DATABASE_URL", "")
    monkeypatch.setenv("SYNCLINE_SCHEDULER__BATCH_SIZE", "")

    assert Settings().database_url is None
    assert Settings().scheduler.batch_size == 1000


def test_the_file_sets(folder: Path) -> None:
    (folder / "syncline.toml").write_text("""
        schema = "other"
        connectors = ["one", "two"]
        [scheduler]
        jitter_pct_max = 0.07
        [rate_limit.providers.github]
        base_seconds = 9
    """)

    settings = Settings()

    assert settings.schema == "other"
    assert settings.connectors == ["one", "two"]
    assert settings.scheduler.jitter_pct_max == Decimal("0.07")
    assert settings.rate_limit.backoff("github").base_seconds == 9


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("typo = 1", "typo: there is no such setting"),
        ("[scheduler]\ntypo = 1", "scheduler.typo: there is no such setting"),
        ("[sheduler]\nbatch_size = 1", "sheduler: there is no such setting"),
        ("pool_size = 1", "pool_size is 1; it must be an integer, at least 2 and at most 500"),
        ("[scheduler", "syncline.toml cannot be read: "),
        ("schema = 'a'\nschema = 'b'", "syncline.toml cannot be read: "),
        (b"schema = '\xff'", "syncline.toml cannot be read: "),
    ],
)
def test_a_bad_file_is_refused_in_one_line(folder: Path, content: str | bytes, line: str) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (folder / "syncline.toml").write_bytes(raw)

    with pytest.raises(SettingsError) as refused:
        Settings()

    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_arguments_come_before_the_environment_and_that_before_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "syncline.toml").write_text(
        "pool_size = 11\n[scheduler]\nbatch_size = 11\ntick_interval_seconds = 11\n"
        "default_interval_seconds = 111"
    )
    monkeypatch.setenv("SYNCLINE_SCHEDULER__BATCH_SIZE", "22")
    monkeypatch.setenv("SYNCLINE_SCHEDULER__TICK_INTERVAL_SECONDS", "22")

    settings = Settings(scheduler={"batch_size": 33})

    assert settings.scheduler.batch_size == 33, "the argument"
    assert settings.scheduler.tick_interval_seconds == 22, "the environment"
    assert settings.scheduler.default_interval_seconds == 111, "the file"
    assert settings.pool_size == 11, "the file"


def test_settings_cannot_be_changed_afterwards() -> None:
    settings = Settings()

    for part, name in ((settings, "pool_size"), (settings.scheduler, "batch_size")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(part, name, 5)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://sync:hunter2@db.example/app",
        "postgresql://sync@db.example/app?password=hunter2",
        "postgresql://sync:hunter2@[::1]:5432/app?sslmode=require",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    settings = Settings(database_url=url, listen_url=url)

    shown = f"{settings} {settings!r} {[settings]}"
    assert "hunter2" not in shown
    assert "db.example/app" in shown or "[::1]:5432" in shown
    assert settings.database_url == settings.listen_url == url
    assert "hunter2" not in refusal("database_url", [url])


def test_every_setting_is_described() -> None:
    def undescribed(model: type[BaseModel], prefix: str = "") -> list[str]:
        found: list[str] = []
        for name, field in model.model_fields.items():
            inner: Any = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += undescribed(inner, f"{prefix}{name}.")
            elif not field.description:
                found.append(prefix + name)
        return found

    assert undescribed(Settings) == []


def test_folders_of_git_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_GIT__LOCAL_ROOTS", "/srv/one, /srv/two")
    monkeypatch.setenv("SYNCLINE_GIT__SCHEMES", "ssh")

    git = Settings().git

    assert git.local_roots == [Path("/srv/one"), Path("/srv/two")]
    assert git.schemes == ["ssh"]
    assert "absolute path" in refusal("git.local_roots", ["repositories"])
    assert "git.schemes" in refusal("git.schemes", ["http"])


@pytest.mark.parametrize("bad", ["*", "proxy.example", "10.0.0.1/8", "10.0.0.0/33"])
def test_a_trusted_proxy_is_an_address_or_a_network(bad: str) -> None:
    assert Settings(api={"trusted_proxies": ["10.0.0.0/8", "::1"]}).api.trusted_proxies
    with pytest.raises(SettingsError, match="is not an address or network"):
        Settings(api={"trusted_proxies": [bad]})
