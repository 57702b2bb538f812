"""Jobs: who settles them, what cancels them, and whose cursor counts."""

from mutations.mutation import Mutation

JOBS = (
    Mutation(
        "the fence",
        "a settle does not present its lease",
        "store/queue/jobs.py",
        (
            (
                "WHERE j.id = ANY (ARRAY[closing.id]) AND j.lease_token IS NOT DISTINCT FROM"
                " closing.token\n",
                "WHERE j.id = ANY (ARRAY[closing.id])\n",
            ),
        ),
        "tests/scenarios/test_leases.py::test_fenced_worker_changes_nothing",
    ),
    Mutation(
        "the fence of an empty run",
        "it closes its job without presenting its lease",
        "store/queue/jobs.py",
        (("AND j.lease_token IS NOT DISTINCT FROM closing.token AND j.again", "AND j.again"),),
        "tests/engine/worker/test_empty_runs.py::test_an_empty_run_whose_lease_is_lost_closes_nothing",
    ),
    Mutation(
        "the rerun request of an empty run",
        "it closes its job without queueing the requested rerun",
        "store/queue/jobs.py",
        (("FROM closing.token AND j.again_priority IS NULL", "FROM closing.token"),),
        "tests/engine/worker/test_empty_runs.py::test_an_empty_run_that_was_marked_is_followed_by_one_more",
    ),
    Mutation(
        "the dedupe key",
        "signals are stored without it",
        "store/data/signals.py",
        (
            (
                "page.kind, page.occurred_at, page.payload, page.dedupe_key\n",
                "page.kind, page.occurred_at, page.payload, NULL\n",
            ),
        ),
        "tests/engine/worker/test_settle_rules.py::test_signals_with_a_dedupe_key_are_stored_once",
    ),
    Mutation(
        "the single transaction",
        "signals and cursor follow in a second one",
        "engine/worker/settle.py",
        (
            (
                "            moved = await self._store(\n",
                "        async with self._pool.transaction() as tx:\n"
                "            moved = await self._store(\n",
            ),
        ),
        "tests/engine/worker/test_settle_rules.py::test_settle_is_one_transaction_or_none_of_it",
    ),
    Mutation(
        "the fence of a group of pages",
        "the page of a run that lost its job is stored with the others",
        "engine/worker/settle.py",
        (("pages = [one for one in pages if one[0].id not in left]", "pages = list(pages)"),),
        "tests/engine/worker/test_page_groups.py::test_each_run_of_a_group_is_settled_as_if_it_were_alone",
    ),
    Mutation(
        "the active connections of a group of pages",
        "a paused connection gets a follow-up",
        "store/data/connections.py",
        (("SELECT count(*) FROM free WHERE status = 'active'", "SELECT count(*) FROM free"),),
        "tests/engine/worker/test_page_groups.py::test_a_page_of_a_paused_connection_is_kept_and_not_followed",
    ),
    Mutation(
        "the lock order",
        "a settle locks its jobs before their connections",
        "engine/worker/settle.py",
        (
            (
                "        locked, blocked = await connections.lock_free(\n"
                "            tx, [one.claim.connection_id for one in group]\n"
                "        )\n",
                '        mine = "SELECT FROM {schema}.sync_jobs WHERE id = ANY ($1) FOR UPDATE"\n'
                "        await tx.fetch(mine, [one.claim.id for one in group])\n"
                "        ids = [one.claim.connection_id for one in group]\n"
                "        locked, blocked = await connections.lock(tx, ids), set()\n",
            ),
        ),
        "tests/store/test_settle_races.py::test_a_trigger_after_the_settle_brings_exactly_one_more",
    ),
    Mutation(
        "the guard",
        "the tick inserts jobs without checking it",
        "store/queue/jobs.py",
        (
            (
                "ON CONFLICT (connection_id, job_type)"
                " WHERE status IN ('queued', 'running') DO NOTHING",
                "",
            ),
        ),
        "tests/scenarios/test_guard.py::test_job_inserted_by_hand_while_a_tick_holds_the_connection",
    ),
    Mutation(
        "single flight",
        "the index that enforces it is not unique",
        "store/migrations/0001_initial.sql",
        (
            (
                "CREATE UNIQUE INDEX sync_jobs_single_flight",
                "CREATE INDEX sync_jobs_single_flight",
            ),
        ),
        "tests/store/test_claim_races.py::test_two_types_of_one_connection_are_claimed_by_one_of_two_claimers",
    ),
    Mutation(
        "key-wise metadata writes",
        "a new cursor replaces all of `metadata.sync`",
        "store/data/connections.py",
        (
            (
                "WHEN jsonb_typeof(c.metadata -> 'sync') = 'object'",
                "WHEN false",
            ),
        ),
        "tests/engine/worker/test_metadata_rules.py::test_metadata_of_the_wrong_kind_is_survived",
    ),
    Mutation(
        "an orderly release",
        "a job that was interrupted counts as failed",
        "engine/worker/settle.py",
        (
            (
                "            closing.lapses, closing.retry_after = claim.lapses, until\n",
                "            closing.lapses, closing.retry_after = claim.lapses, until\n"
                "            closing.attempts += 1\n",
            ),
        ),
        "tests/engine/worker/test_release.py::test_a_released_job_keeps_its_attempts_and_its_last_error",
    ),
    Mutation(
        "a job that plain SQL cancelled",
        "its run marks it as succeeded",
        "store/queue/jobs.py",
        (
            (
                "       AND CASE WHEN j.status = 'running' THEN true ELSE false END\n"
                " RETURNING j.id, j.again_priority",
                " RETURNING j.id, j.again_priority",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_a_running_job_that_plain_sql_cancelled_stays_cancelled",
    ),
    Mutation(
        "an empty run that plain SQL cancelled",
        "it marks its job as succeeded",
        "store/queue/jobs.py",
        (
            (
                "           AND CASE WHEN j.status = 'running' THEN true ELSE false END\n"
                "           AND j.lease_token",
                "           AND j.lease_token",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_a_running_job_that_plain_sql_cancelled_stays_cancelled",
    ),
    Mutation(
        "a stream that plain SQL cancelled",
        "it stores further pages",
        "store/queue/streams.py",
        (
            (
                "       AND CASE WHEN j.status = 'running' THEN true ELSE false END\n"
                "       AND j.committed_pages",
                "       AND j.committed_pages",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_a_stream_that_plain_sql_cancelled_stores_no_further_page",
    ),
    Mutation(
        "a renewal that notices a job cancelled by plain SQL",
        "the cancelled run continues to its end",
        "store/queue/claims.py",
        (('       AND CASE WHEN status = \'running\' THEN true ELSE false END\n"""', '"""'),),
        "tests/store/test_lease_races.py::test_a_renewal_extends_nothing_that_is_no_longer_ours",
    ),
    Mutation(
        "the wait for a cancelled run",
        "the next job starts while it still calls the provider",
        "store/queue/triggers.py",
        (("stops_by = lease_expires_at,", "stops_by = NULL,"),),
        "tests/services/test_retry_and_cancel_rules.py::test_the_next_job_waits_until_a_cancelled_run_has_stopped",
    ),
    Mutation(
        "the wait of a poison job for a cancelled run",
        "a job that may kill workers starts while the cancelled one still runs",
        "store/queue/claims.py",
        (
            (
                "> coalesce($2::timestamptz, now())\n"
                "                                  AND (NOT $5::bool OR s.job_type = j.job_type)"
                " OFFSET 0)\n"
                "             ORDER BY j.priority DESC",
                "> coalesce($2::timestamptz, now()) AND false OFFSET 0)\n"
                "             ORDER BY j.priority DESC",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_the_next_job_waits_for_a_dead_worker_as_long_as_its_lease",
    ),
    Mutation(
        "the wait for a run that plain SQL cancelled",
        "the next job starts while it still calls the provider",
        "store/queue/claims.py",
        (
            (
                "AND (s.stops_by IS NOT NULL OR s.lease_token IS NOT NULL)\n"
                "                                  AND coalesce(s.stops_by, s.lease_expires_at)\n"
                "                                      > coalesce($2::timestamptz, now())\n"
                "                                  AND (NOT $5::bool OR s.job_type = j.job_type)"
                " OFFSET 0)\n"
                "             ORDER BY j.scheduled_at",
                "AND s.stops_by > coalesce($2::timestamptz, now())\n"
                "                                  AND (NOT $5::bool OR s.job_type = j.job_type)"
                " OFFSET 0)\n"
                "             ORDER BY j.scheduled_at",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_the_next_job_waits_until_a_run_that_plain_sql_cancelled_has_stopped",
    ),
    Mutation(
        "the token of a run that confirms that it stopped",
        "a worker that lost a job long ago confirms for its successor",
        "store/queue/claims.py",
        (
            (
                "AND coalesce(stops_token, lease_token) = ANY ($2::uuid[])",
                "AND $2::uuid[] IS NOT NULL",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_a_worker_that_lost_a_job_long_ago_confirms_nothing_for_its_successor",
    ),
    Mutation(
        "the confirmation of a cancelled run that has stopped",
        "the next job waits until the lease would have ended",
        "engine/worker/leases.py",
        (
            (
                "                confirmed = await claims.confirm_stopped(tx, stopped)\n",
                "                confirmed = 0\n",
            ),
        ),
        "tests/services/test_retry_and_cancel_rules.py::test_the_next_job_waits_until_a_cancelled_run_has_stopped",
    ),
    Mutation(
        "a cursor that a person moved",
        "a run overwrites the cursor that a person set meanwhile",
        "store/data/connections.py",
        (("OR (c.metadata #> '{sync,cursor}') IS NOT DISTINCT FROM page.replaces", "OR true"),),
        "tests/engine/worker/test_lost_commits.py::test_a_cursor_that_was_set_during_a_run_stays",
    ),
    Mutation(
        "a cursor that is already stored",
        "its page is settled again and again, without end",
        "store/data/connections.py",
        (("\n            OR c.metadata #> '{sync,cursor}' = page.cursor)", ")"),),
        "tests/engine/worker/test_lost_commits.py"
        "::test_a_cursor_that_was_set_to_where_the_page_leads_is_there_already",
    ),
    Mutation(
        "an end to a write that always changes the wrong number of rows",
        "a group is settled again and again because of one row",
        "engine/worker/settle_retry.py",
        (("is_passing(error) and not isinstance(error, WriteLost)", "is_passing(error)"),),
        "tests/engine/bad_input/test_groups.py"
        "::test_a_write_that_is_lost_every_time_leaves_the_others_alone",
    ),
    Mutation(
        "the follow-up of a run whose cursor was moved",
        "it continues from the run, not from the cursor that a person set",
        "engine/worker/settle.py",
        (
            (
                "None if cursor_was_moved else page.next_cursor",
                "page.next_cursor",
            ),
        ),
        "tests/engine/worker/test_lost_commits.py::test_a_cursor_that_was_set_during_a_run_stays",
    ),
    Mutation(
        "a cursor that is set while a job waits",
        "the queued job keeps the cursor that it has",
        "services/edits.py",
        (("            await jobs.forget_cursors(tx, connection_id)\n", "            pass\n"),),
        "tests/engine/worker/test_lost_commits.py::test_a_cursor_that_was_set_is_not_lost_to_a_queued_follow_up",
    ),
    Mutation(
        "an error whose own properties raise",
        "its job is left running",
        "policy/outcome.py",
        (
            (
                "    except Exception:  # a property may raise; the job",
                "    except KeyError:  # a property may raise; the job",
            ),
        ),
        "tests/policy/test_error_records.py::test_an_error_whose_own_properties_raise_is_recorded",
    ),
    Mutation(
        "hints that are text",
        "a header that the connector passed on is ignored",
        "policy/backoff.py",
        (("    if isinstance(asked, str):\n", "    if False:\n"),),
        "tests/policy/test_backoff.py::test_a_hint_is_heeded_up_to_a_day",
    ),
    Mutation(
        "the threads of blocking connectors",
        "their jobs are claimed like any others",
        "engine/worker/slots.py",
        (("if one.is_blocking and slug not in programs", "if False"),),
        "tests/engine/worker/test_slots.py::test_blocking_connectors_take_few_threads_and_hold_nobody_up",
    ),
    Mutation(
        "the cores of connectors that run programs",
        "their jobs are claimed like any others",
        "engine/worker/slots.py",
        (("if one.runs_programs]", "if False]"),),
        "tests/engine/worker/test_slots.py::test_programs_are_started_by_the_number_of_cores",
    ),
    Mutation(
        "the memory of large pages",
        "slots grow however large pages are",
        "policy/concurrency.py",
        (("if load.run_bytes > 0:", "if False:"),),
        "tests/policy/test_concurrency.py::test_the_limit_follows_the_load",
    ),
    Mutation(
        "the collector of a process with two engines",
        "the first engine out puts it back",
        "engine/garbage_collector.py",
        (
            (
                "            self._inside -= 1\n            if not self._inside:",
                "            if True:",
            ),
        ),
        "tests/engine/test_garbage_collector.py::test_the_last_engine_out_puts_the_collector_back",
    ),
)
