"""The database: its clock, its sessions, its refusals, and readiness checks."""

from mutations.mutation import Mutation

DATABASE = (
    Mutation(
        "the database's clock",
        "each host uses its own clock",
        "clock.py",
        (
            (
                "        return await tx.database_time()\n",
                "        return datetime.now(UTC)  # noqa: ARG002\n",
            ),
            ("        return None\n", "        return datetime.now(UTC)\n"),
        ),
        "tests/simulation/test_one_clock.py::test_every_instant_is_the_databases",
    ),
    Mutation(
        "the isolation of a session",
        "a statement sent alone runs under the server's default",
        "store/pool.py",
        (('            "default_transaction_isolation": ISOLATION,\n', ""),),
        "tests/engine/worker/test_standstills.py::test_the_isolation_is_ours_whatever_the_server_says",
    ),
    Mutation(
        "the isolation of a transaction",
        "behind a pooler, it is the server's default",
        "store/pool.py",
        (('BEGIN = f"BEGIN ISOLATION LEVEL {ISOLATION}"', 'BEGIN = "BEGIN"'),),
        "tests/engine/worker/test_standstills.py::test_the_isolation_is_ours_whatever_the_server_says",
    ),
    Mutation(
        "only the catalogue's functions",
        "functions of other schemas are called",
        "store/connect.py",
        (('SEARCH_PATH = "pg_catalog, pg_temp"', 'SEARCH_PATH = "public, pg_catalog, pg_temp"'),),
        "tests/store/test_search_path.py::test_nothing_of_somebody_else_is_called",
    ),
    Mutation(
        "only the catalogue's functions, behind a pooler",
        "functions of other schemas are called",
        "store/pool.py",
        (('                f"; SET LOCAL search_path = {SEARCH_PATH}"\n', ""),),
        "tests/store/test_search_path.py::test_nothing_of_somebody_else_is_called",
    ),
    Mutation(
        "a login that is refused for a while",
        "a finished page is discarded",
        "store/errors.py",
        (('"28": ', '"28XXX": '),),
        "tests/engine/worker/test_standstills.py::test_a_refusal_by_the_server_passes",
    ),
    Mutation(
        "a server that is read-only for a while",
        "a finished page is discarded",
        "store/errors.py",
        (('"25006": ', '"25XXX": '),),
        "tests/engine/worker/test_standstills.py::test_a_refusal_by_the_server_passes",
    ),
    Mutation(
        "a server in the wrong state",
        "a finished page is discarded",
        "store/errors.py",
        (('"55000": ', '"55XXX": '),),
        "tests/engine/worker/test_standstills.py::test_a_refusal_by_the_server_passes",
    ),
    Mutation(
        "sessions of a primary that was demoted",
        "they are kept although they can store nothing",
        "store/pool.py",
        (("if isinstance(error, asyncpg.ReadOnlySQLTransactionError):", "if False:"),),
        "tests/store/test_pool.py::test_a_read_only_answer_gives_up_every_session",
    ),
    Mutation(
        "the primary among several hosts",
        "a session may connect to a standby",
        "store/connect.py",
        (("    if names_many_hosts(url):\n", "    if False:\n"),),
        "tests/store/test_pool.py::test_of_many_hosts_one_is_taken_that_can_store",
    ),
    Mutation(
        "readiness of a database that is read-only",
        "`/readyz` answers 200",
        "app.py",
        (("if await tx.is_read_only():", "if False:"),),
        "tests/api/test_app.py::test_a_database_that_is_read_only_is_not_ready",
    ),
    Mutation(
        "readiness while nothing can be settled",
        "`/readyz` answers 200",
        "engine/service.py",
        (("        if self._worker.settle_queue.trouble is not None:\n", "        if False:\n"),),
        "tests/api/test_app.py::test_what_cannot_be_settled_is_not_ready",
    ),
    Mutation(
        "the wait for a database that is not reachable yet",
        "`up` and `run` exit with 1",
        "cli/session.py",
        (("            if not is_unreachable(error):\n", "            if True:\n"),),
        "tests/cli/test_processes.py::test_it_waits_for_a_database_that_is_not_there_yet",
    ),
    Mutation(
        "the certificate of a remote database",
        "an attacker on the network can offer none",
        "store/connect.py",
        (("if mode is None and is_local(url, environment):", "if mode is None:"),),
        "tests/security/test_remote_database.py::test_an_unknown_certificate_is_refused_in_one_line",
    ),
    Mutation(
        "a migration that was changed after it was applied",
        "the change is not noticed",
        "store/migrate.py",
        (
            (
                "    if applied and checksums[migration.version] not in accepted:\n",
                "    if False:\n",
            ),
        ),
        "tests/store/test_migrate.py::test_an_applied_migration_that_was_changed_is_refused",
    ),
)
