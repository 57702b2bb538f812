"""Leases, rows held by other transactions, and pages that take long to store."""

from mutations.mutation import Mutation

LEASES = (
    Mutation(
        "the reaper",
        "it finds nothing",
        "store/queue/claims.py",
        (
            (
                "AND coalesce(lease_expires_at <= $1, coalesce(started_at, scheduled_at) <= $2)",
                "AND coalesce(lease_expires_at <= $1, coalesce(started_at, scheduled_at) <= $2)"
                " AND false",
            ),
        ),
        "tests/scenarios/test_leases.py::test_lapsed_lease_is_reaped",
    ),
    Mutation(
        "the lease in a renewal",
        "a worker renews jobs that it no longer holds",
        "store/queue/claims.py",
        (
            (
                "WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])\n           AND",
                "WHERE id = ANY ($1::uuid[]) AND $2::uuid[] IS NOT NULL\n           AND",
            ),
            (
                "WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])\n       AND",
                "WHERE id = ANY ($1::uuid[])\n       AND",
            ),
        ),
        "tests/store/test_lease_races.py::test_a_renewal_extends_nothing_that_is_no_longer_ours",
    ),
    Mutation(
        "the result of renewing a job that another transaction holds",
        "it counts as renewed although it was not",
        "store/queue/claims.py",
        (("id IN (SELECT id FROM free) AS is_renewed", "true AS is_renewed"),),
        "tests/store/test_lease_races.py::test_a_renewal_waits_for_nobody",
    ),
    Mutation(
        "the lease by this process's own clock",
        "a worker without a database keeps calling the provider",
        "engine/worker/runs.py",
        (("elif now - run.lease_confirmed >= safe_seconds:", "elif False:"),),
        "tests/engine/worker/test_overlapping_calls.py::test_a_worker_cut_off_from_postgres_hangs_up_before_its_lease_ends",
    ),
    Mutation(
        "the time to stop before a lease ends",
        "a worker that was cut off still calls the provider when another has the job",
        "engine/worker/runs.py",
        (("return lease_seconds - min(STOP_SECONDS, lease_seconds / 6)", "return lease_seconds"),),
        "tests/engine/worker/test_overlapping_calls.py::test_a_run_stops_before_its_lease_ends",
    ),
    Mutation(
        "the wait for a run that was told to stop",
        "its job is settled, and the next attempt overlaps it at the provider",
        "engine/worker/runs.py",
        (
            (
                "            if run.is_alive:\n                asyncio",
                "            if False:\n                asyncio",
            ),
        ),
        "tests/engine/worker/test_overlapping_calls.py::test_a_run_that_timed_out_keeps_its_job_until_its_connector_has_stopped",
    ),
    Mutation(
        "the first run of a job that was lost and claimed again",
        "both call the provider",
        "engine/worker/executor.py",
        (("        if run.predecessor is not None:\n", "        if False:\n"),),
        "tests/engine/worker/test_overlapping_calls.py::test_a_process_that_claims_a_job_again_calls_nobody_while_its_first_run_goes_on",
    ),
    Mutation(
        "a claim whose answer came too late",
        "its jobs are run although another worker may have them",
        "engine/worker/executor.py",
        (("if monotonic() - run.lease_confirmed >= self._safe_seconds:", "if False:"),),
        "tests/engine/worker/test_overlapping_calls.py::test_a_claim_whose_answer_comes_too_late_calls_nobody",
    ),
    Mutation(
        "large connections read apart from their claim",
        "two thousand of them in one answer never arrive",
        "store/queue/claims.py",
        (("> 2000 AS is_large", "> 2000000000 AS is_large"),),
        "tests/engine/worker/test_large_connections.py::test_a_claim_leaves_large_metadata_out",
    ),
    Mutation(
        "poison jobs one at a time",
        "a process runs many jobs that may kill it",
        "engine/worker/claimer.py",
        (("poison_jobs = int(with_poison_job)", "poison_jobs = limit"),),
        "tests/engine/worker/test_lease_rules.py::test_process_runs_one_poison_job_at_a_time",
    ),
    Mutation(
        "locks that a settle does not wait for",
        "a few dozen held rows stop a worker",
        "store/data/connections.py",
        (("\n       FOR NO KEY UPDATE SKIP LOCKED\n", "\n       FOR NO KEY UPDATE\n"),),
        "tests/engine/worker/test_standstills.py::test_rows_that_somebody_holds_hold_up_nobody_else",
    ),
    Mutation(
        "locks on jobs that a settle does not wait for",
        "a waiting settle occupies a session",
        "store/queue/jobs.py",
        (("       FOR NO KEY UPDATE SKIP LOCKED\n", "       FOR NO KEY UPDATE\n"),),
        "tests/engine/worker/test_standstills.py::test_a_settle_passes_by_a_job_that_somebody_holds",
    ),
    Mutation(
        "locks that a stream does not wait for",
        "waiting pages occupy all sessions",
        "engine/worker/streams.py",
        (
            (
                "await connections.lock_free(tx, [claim.connection_id])",
                "(await connections.lock(tx, [claim.connection_id]), False)",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_a_held_page_of_a_stream_keeps_no_session_from_others",
    ),
    Mutation(
        "locks that the reaper does not wait for",
        "one held row delays all reaping",
        "engine/worker/settle.py",
        (
            (
                "self._settle_in(tx, group, lock_jobs=True))",
                "self._settle_in(tx, group, lock_jobs=False))",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_a_settle_passes_by_a_job_that_somebody_holds",
    ),
    Mutation(
        "what blocked the reaper",
        "it is forgotten until its new lease lapses too",
        "engine/worker/reaper.py",
        (
            (
                "self._blocked += [one.claim for one in group if one.is_blocked]",
                "self._blocked = []",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_one_held_row_does_not_delay_the_reaping_of_others",
    ),
    Mutation(
        "slots while other runs wait for a lock",
        "unsettled runs fill the bound, and nothing more is claimed",
        "engine/worker/executor.py",
        (("len(self._runs) - self._settle_queue.excused", "len(self._runs)"),),
        "tests/engine/worker/test_standstills.py::test_rows_that_somebody_holds_hold_up_nobody_else",
    ),
    Mutation(
        "the bytes of pages that wait for a lock",
        "pages fill the memory while another transaction holds their rows",
        "engine/worker/settle_queue.py",
        (("len(self._blocked_bytes) if is_small else 0", "len(self._blocked_bytes)"),),
        "tests/engine/worker/test_standstills.py::test_held_pages_do_not_fill_the_memory",
    ),
    Mutation(
        "splitting a group that takes too long",
        "the whole group is repeated forever",
        "engine/worker/settle_queue.py",
        (("(lies_in_rows(error) or is_timeout(error) or must_end)", "lies_in_rows(error)"),),
        "tests/engine/worker/test_standstills.py::test_a_group_that_takes_too_long_is_split_and_the_culprit_fails",
    ),
    Mutation(
        "groups of bounded size",
        "twenty large pages go into one transaction",
        "engine/worker/settle_queue.py",
        ((" or size + page.payload_bytes > LARGEST_GROUP_BYTES:", ":"),),
        "tests/engine/worker/test_standstills.py::test_a_group_is_bounded_by_bytes",
    ),
    Mutation(
        "a task for large pages",
        "small ones wait behind them",
        "engine/worker/settle_queue.py",
        (("if page is not None and page.payload_bytes > LARGEST_GROUP_BYTES:", "if False:"),),
        "tests/engine/worker/test_standstills.py::test_large_pages_do_not_keep_small_ones_waiting",
    ),
    Mutation(
        "statements of bounded size",
        "a large page is sent at once",
        "store/data/signals.py",
        (("if index > first and total + size > STATEMENT_BYTES:", "if False:"),),
        "tests/engine/worker/test_standstills.py::test_a_page_of_many_bytes_is_stored_in_many_statements",
    ),
    Mutation(
        "time for a large statement",
        "a large signal never arrives over a slow link",
        "store/data/signals.py",
        (("await tx.send_large(max(size for _, _, size in parts))", "pass"),),
        "tests/simulation/test_slow_line.py::test_the_server_waits_for_a_page_that_is_still_arriving",
    ),
    Mutation(
        "giving up on a page that the database cannot store in time",
        "it is retried forever",
        "engine/worker/settle_retry.py",
        (
            (
                "return self._timeouts >= MOST_TIMEOUTS and server_answered_at >"
                " self._failing_since",
                "return False",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_a_group_that_takes_too_long_is_split_and_the_culprit_fails",
    ),
    Mutation(
        "the difference between an outage and a page that is too large",
        "pages are discarded while the server is away",
        "engine/worker/settle_retry.py",
        ((" and server_answered_at > self._failing_since", ""),),
        "tests/engine/worker/test_standstills.py::test_a_timeout_while_nobody_is_answered_is_an_outage",
    ),
    Mutation(
        "an unknown error, which may pass",
        "the finished page is discarded at once",
        "engine/worker/settle_retry.py",
        (("or now - self._failing_since >= self._lease_seconds", "or True"),),
        "tests/engine/worker/test_standstills.py::test_an_unknown_error_keeps_the_page_for_as_long_as_a_lease",
    ),
)
