"""The benchmark plans, measures and judges what it says it does."""

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from bench import __main__ as command
from bench import plan, report
from bench.contenders import PEERS, SYNCLINE
from bench.measure import (
    CPU_PER_JOB,
    JOBS_PER_SECOND,
    P50,
    Tally,
    server_cpu_seconds,
)
from bench.plan import FULL, QUICK, TINY, Trial
from bench.results import Results
from bench.targets import TARGETS, judge
from bench.workloads import draining, http, signals
from bench.workloads.__main__ import WORKLOADS
from bench.workloads.case import Case
from bench.workloads.library import COMMANDS
from bench.workloads.steady import (
    GROWTH,
    LATENESS_P99,
    at_a_third,
    at_the_end,
    id_at,
    percentile_of,
    short_retention,
)

from syncline import Settings
from syncline.clock import IdMaker
from syncline.testing.database import TemporaryServer

EVERY_NAME = (*plan.ALL, *plan.LONG, *plan.ON_REQUEST)
DOCUMENTED, TUNED = (peer.name for peer in PEERS[:2])
JUDGED_FIGURES = (
    *(JOBS_PER_SECOND, CPU_PER_JOB, P50, http.CPU_BY_BARE, http.RATE_BY_BARE, signals.BY_COPY),
    *(LATENESS_P99, GROWTH, "÷ per-row loop", "empty tick, ms", "÷ ideal", "late ÷ early"),
)

INDEXES = """
    SELECT split_part(indexdef, ' btree ', 2) AS columns, indexdef LIKE '% UNIQUE %' AS is_unique
      FROM pg_indexes WHERE tablename = $1 ORDER BY columns
"""
COLUMNS = """
    SELECT column_name, data_type, is_nullable FROM information_schema.columns
     WHERE table_name = $1 ORDER BY column_name
"""
OTHER_SESSIONS = """
    SELECT EXISTS (SELECT FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid())
"""


@pytest.mark.parametrize("name", EVERY_NAME)
def test_each_workload_can_run_alone_and_has_a_title(name: str) -> None:
    trials = plan.plan(FULL, PEERS, [name])

    assert {trial.workload for trial in trials} == {name}
    assert name in WORKLOADS
    assert name in report.TITLES


def test_a_quick_run_covers_calls_and_backoffs() -> None:
    trials = plan.plan(QUICK, [], plan.QUICK_ONES)

    assert {"http", "backoff"} <= {trial.workload for trial in trials}
    assert "mixed" not in {trial.workload for trial in trials}
    assert not {trial.variant for trial in trials} & set(plan.SHOWN_ONLY)


def test_a_long_workload_runs_once() -> None:
    order = plan.interleaved(plan.plan(FULL, [], EVERY_NAME), 3)

    counted = Counter(trial.workload for _, trial in order if trial.is_long)
    assert counted == {"memory": 1, "mixed": 1, "steady": 1}


def test_both_sides_of_a_ratio_take_the_same_turns() -> None:
    order = plan.interleaved(plan.plan(FULL, PEERS, ("drain", "cursor", "library")), 3)
    turns: dict[tuple[str, str, str], set[int]] = {}
    for number, trial in order:
        turns.setdefault((trial.workload, trial.variant, trial.contender), set()).add(number)

    for workload, variant in (
        ("cursor", plan.NEW_CURSORS),
        ("cursor", plan.DEFAULT_SETTINGS),
        ("drain", plan.DEFAULT_SETTINGS),
        ("library", plan.LIBRARY),
        ("library", plan.COMMAND_LINE),
    ):
        assert turns[workload, variant, SYNCLINE] == turns["drain", plan.NO_OP, TUNED]


def test_each_way_to_start_a_process_is_planned() -> None:
    assert set(plan.LAUNCHES) == set(COMMANDS)


def test_a_size_is_changed_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--only", "mixed", "--size", "mixed_connections=100000", "--size", "mixed_minutes=5"]
    monkeypatch.setattr(sys, "argv", ["bench", *given])

    options = command.parse_options()
    (trial,) = plan.plan(command.chosen_sizes(options), [], command.chosen_workloads(options))

    assert trial.options["connections"] == 100_000
    assert trial.options["seconds"] == 300
    assert options.output == command.PARTIAL


def test_an_unknown_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--size", "speed=3"])

    with pytest.raises(SystemExit):
        command.parse_options()

    assert "'speed' is not one of jobs, " in capsys.readouterr().err


def test_the_targets_are_those_that_must_be_shown() -> None:
    bounds = {target.name: (target.must, target.aim) for target in TARGETS}

    assert bounds["run of rest over TLS ÷ bare aiohttp call, CPU"] == (3, 2)
    assert bounds["the same, runs/s ÷ the bare loop's calls/s"] == (0.35, 0.6)
    assert bounds["drain with cursors ÷ graphile-worker, documented"] == (1.0, 1.3)
    assert bounds["drain with cursors ÷ graphile-worker, tuned"] == (0.65, 1.0)
    assert bounds["drain ÷ graphile-worker, documented"] == (1.2, 1.5)
    assert bounds["drain ÷ graphile-worker, tuned"] == (0.8, 1.0)
    assert bounds["library ÷ command line"] == (0.8, 0.95)
    assert bounds["default settings ÷ best, empty runs"] == (0.8, 0.95)
    assert bounds["default settings ÷ best, cursors"] == (0.8, 0.95)
    assert bounds["ten signals a run ÷ psql COPY"] == (0.5, 0.7)
    assert bounds["backoff ended ÷ fresh, default slots"] == (0.7, 0.9)
    assert bounds["backoff ended ÷ fresh, 8,000 slots"] == (0.7, 0.9)
    assert bounds["old snapshot held ÷ none"] == (0.75, 0.9)
    assert bounds["first sync ÷ git log"] == (30, 15)
    assert bounds["mixed, lateness p99, s"] == (2, 1)
    assert bounds["mixed, size of tables at the end ÷ at a third"] == (1.05, 1.0)
    assert bounds["slow connector ÷ ideal"] == (0.85, 0.95)


def test_every_target_finds_its_figures_among_the_planned_trials() -> None:
    results = Results(settings={"rounds": 1, "postgres": {}})
    for trial in plan.plan(TINY, PEERS, EVERY_NAME):
        results.add(trial, 0, dict.fromkeys(JUDGED_FIGURES, 1.0))

    unmeasured = {verdict.target.name for verdict in judge(results) if verdict.value is None}

    assert unmeasured <= {"first sync ÷ git log"}


def test_a_ratio_divides_within_each_turn() -> None:
    results = Results()
    for number, (ours, theirs) in enumerate([(30, 20), (10, 10), (60, 20)]):
        for contender, rate in ((SYNCLINE, ours), (DOCUMENTED, theirs)):
            workload, variant = "drain", plan.NO_OP
            if contender == SYNCLINE:
                workload, variant = "cursor", plan.NEW_CURSORS
            trial = Trial(workload, variant, contender)
            results.add(trial, number, {JOBS_PER_SECOND: float(rate)})

    name = "drain with cursors ÷ graphile-worker, documented"
    (verdict,) = (verdict for verdict in judge(results) if verdict.target.name == name)

    assert verdict.value is not None
    assert (verdict.value.low, verdict.value.median, verdict.value.high) == (1.0, 1.5, 3.0)
    assert verdict.word == "aim met"


def test_our_variants_are_named_in_a_table_beside_peers() -> None:
    results = Results()
    for variant, contender, rate in (
        (plan.NO_OP, SYNCLINE, 40.0),
        (plan.NO_OP, TUNED, 50.0),
        (plan.DEFAULT_SETTINGS, SYNCLINE, 20.0),
    ):
        results.add(Trial("drain", variant, contender), 0, {JOBS_PER_SECOND: rate})

    _, *rows = report.table(results, "drain")

    assert rows == [
        (SYNCLINE, "40", "1"),
        (f"{SYNCLINE}, {plan.DEFAULT_SETTINGS}", "20", "2"),
        (TUNED, "50", "0.8"),
    ]


def test_sizes_are_compared_by_medians_of_two_windows() -> None:
    samples = [(float(at), {"jobs": float(at)}) for at in range(121)]

    assert at_a_third(samples, 120) == {"jobs": 45}
    assert at_the_end(samples, 120) == {"jobs": 115}


def test_a_percentile_is_read_from_counts() -> None:
    late = Counter({0: 50, 10: 49, 300: 1})

    assert percentile_of(late, 0.5) == 0.01
    assert percentile_of(late, 0.99) == 0.11
    assert percentile_of(late, 1) == 3.01


def test_the_retention_of_a_benchmark_may_be_minutes() -> None:
    settings = Settings(retention=short_retention(8))

    assert settings.retention.jobs_days == 8 / 1440
    assert settings.retention.signals_days == 8 / 1440
    assert settings.retention.first_round_seconds == 60


def test_older_rows_are_left_out_by_their_ids() -> None:
    now = datetime.now(UTC)

    # A new maker: those of other tests may have seen a clock that was ahead.
    assert id_at(now - timedelta(seconds=1)) < IdMaker()() < id_at(now + timedelta(minutes=1))


async def test_a_drain_that_takes_too_long_counts_what_has_started() -> None:
    tally = Tally(1000)
    tally.job()

    async def is_pending() -> bool:
        raise AssertionError("it has not drained")

    figures = await tally.drained(is_pending, at_most=0.01)

    assert 0 < figures[JOBS_PER_SECOND] < 1000


async def test_the_servers_processor_time_includes_processes_that_ended(
    server: TemporaryServer,
) -> None:
    url = server.create_database()
    watching, working = await asyncpg.connect(url), await asyncpg.connect(url)
    backend = await watching.fetchval("SELECT pg_backend_pid()")
    before = server_cpu_seconds(backend)
    await working.execute("SELECT count(*) FROM generate_series(1, 1000000)")
    during = server_cpu_seconds(backend)
    await working.close()
    while await watching.fetchval(OTHER_SESSIONS):
        pass

    assert before < during <= server_cpu_seconds(backend)
    await watching.close()
    server.drop_database(url)


@pytest.mark.parametrize("kind", http.KINDS)
async def test_calls_through_the_engine_are_measured_beside_bare_ones(
    kind: str, server: TemporaryServer
) -> None:
    url = server.create_database()

    figures = await http.runs(Case(url, "", {"kind": kind, "jobs": 20, "concurrency": 10}))

    assert figures[http.CPU_BY_BARE] > 0
    assert figures[http.RATE_BY_BARE] > 0
    server.drop_database(url)


@pytest.mark.parametrize("ended", [False, True])
async def test_what_an_outage_left_behind_is_drained(ended: bool, server: TemporaryServer) -> None:
    url = server.create_database()

    options = {"jobs": 50, "seconds": 60, "concurrency": None, "ended": ended}
    await draining.backoff(Case(url, "", options))

    session = await asyncpg.connect(url)
    counted = await session.fetch(
        "SELECT status, attempts, count(*) FROM syncline.sync_jobs GROUP BY 1, 2"
    )
    await session.close()
    assert [tuple(row) for row in counted] == [("succeeded", int(ended), 50)]
    server.drop_database(url)


async def test_the_copy_has_only_the_unique_indexes(database_url: str) -> None:
    session = await asyncpg.connect(database_url)
    transaction = session.transaction()
    await transaction.start()

    await signals.create_copy(session)

    copied, ours = [await session.fetch(INDEXES, table) for table in ("copied", "signals")]
    columns = [await session.fetch(COLUMNS, table) for table in ("copied", "signals")]
    await transaction.rollback()
    await session.close()
    assert copied == [index for index in ours if index["is_unique"]]
    assert len(copied) == 2
    assert columns[0] == columns[1]
