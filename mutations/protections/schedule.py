"""The tick, its clock, and what makes a job start when it is due."""

from mutations.mutation import Mutation

SCHEDULE = (
    Mutation(
        "splitting a batch that takes too long",
        "a batch that is too much for the server is never scheduled",
        "engine/scheduler/tick.py",
        (
            (
                "not (lies_in_rows(error) or is_timeout(error)):",
                "not lies_in_rows(error):",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_a_batch_that_is_too_much_for_the_server_is_scheduled_in_parts",
    ),
    Mutation(
        "rows that a tick skips",
        "it waits for a connection that another transaction holds",
        "store/queue/schedule.py",
        (
            (
                "AND status = 'active' AND look_at <= $2\n"
                "          ORDER BY id\n"
                "            FOR UPDATE SKIP LOCKED",
                "AND status = 'active' AND look_at <= $2\n"
                "          ORDER BY id\n"
                "            FOR UPDATE",
            ),
        ),
        "tests/engine/scheduler/test_scheduler_rules.py::test_tick_does_not_wait_for_a_locked_connection",
    ),
    Mutation(
        "the record of connections that a tick found held",
        "`verify` reports a held connection as late",
        "engine/scheduler/tick.py",
        (("held = report.blocked[:MOST_BLOCKED]", "held: list[UUID] = []"),),
        "tests/store/test_invariants.py::test_a_connection_that_somebody_holds_is_not_held_against_the_tick",
    ),
    Mutation(
        "correcting connections after the clock was ahead",
        "they are not checked until the clock reaches that time again",
        "engine/scheduler/clock_repair.py",
        (("await schedule.bring_checks_back(tx, after=ahead_of, limit=size)", "0"),),
        "tests/engine/test_time_rules.py::test_a_clock_that_stood_ahead_for_a_moment_stalls_nobody",
    ),
    Mutation(
        "correcting jobs after the clock was ahead",
        "they stay queued until the clock reaches that time again",
        "engine/scheduler/clock_repair.py",
        (("await jobs.pull_back(tx, latest, now=now, limit=size)", "0"),),
        "tests/engine/test_time_rules.py::test_a_clock_that_stood_ahead_for_a_moment_stalls_nobody",
    ),
    Mutation(
        "correcting backoffs after the clock was ahead",
        "they end when the clock reaches that time again",
        "store/queue/jobs.py",
        (("THEN $2 ELSE retry_after END", "THEN retry_after ELSE retry_after END"),),
        "tests/engine/test_time_rules.py::test_a_wait_that_began_while_the_clock_stood_ahead_ends",
    ),
    Mutation(
        "correcting leases after the clock was ahead",
        "they lapse when the clock reaches that time again",
        "store/queue/jobs.py",
        (
            (
                "lease_expires_at = least(lease_expires_at, $4),",
                "lease_expires_at = lease_expires_at,",
            ),
        ),
        "tests/engine/test_time_rules.py::test_a_lease_that_was_taken_while_the_clock_stood_ahead_lapses",
    ),
    Mutation(
        "correcting a check that is further off than any interval",
        "without a scheduler that ticked ahead, it stays that far off",
        "engine/scheduler/clock_repair.py",
        (
            (
                "await schedule.bring_checks_back(tx, after=horizon + 2 * longest, limit=size)",
                "size - 1 if longest else size",
            ),
        ),
        "tests/engine/test_time_rules.py::test_a_check_that_was_put_off_for_too_long_is_brought_back",
    ),
    Mutation(
        "the next run of a job that was pulled forward",
        "the published time is not updated",
        "engine/scheduler/tick.py",
        (
            (
                "await schedule.publish_next_runs(tx, pulled, now=now) if pulled else 0",
                "len(pulled)",
            ),
        ),
        "tests/services/test_leaving_rules.py::test_new_interval_pulls_a_queued_interval_job_forward",
    ),
    Mutation(
        "a connection made active by plain SQL",
        "its old status reason stays",
        "store/queue/schedule.py",
        (("           status_reason = NULL,\n", ""),),
        "tests/services/test_leaving_rules.py::test_what_plain_sql_makes_active_loses_the_reason_why_it_was_not",
    ),
    Mutation(
        "a scheduler after a stop",
        "later ticks of the same engine do nothing",
        "engine/service.py",
        (("        self._scheduler.start()  #", "        #"),),
        "tests/engine/worker/test_standstills.py::test_a_scheduler_that_was_stopped_ticks_again",
    ),
    Mutation(
        "the interval after the clock was ahead",
        "a run follows as soon as the last one has ended",
        "policy/schedule.py",
        (("    return max(now, candidate.next_check_at or now)", "    return now"),),
        "tests/engine/test_time_rules.py::test_runs_are_one_interval_apart_after_the_clock_stood_ahead",
    ),
    Mutation(
        "the end of backoffs",
        "a failed job waits forever",
        "engine/worker/claimer.py",
        (("        await ended.look(session, wanted.limit)\n", ""),),
        "tests/engine/worker/test_standstills.py::test_jobs_whose_backoff_has_ended_stand_in_line_with_fresh_ones",
    ),
    Mutation(
        "the delay of a retry",
        "it is counted from when the job was first due",
        "store/queue/claims.py",
        (("greatest(j.scheduled_at, j.retry_after, j.ready_at)", "greatest(j.scheduled_at)"),),
        "tests/engine/worker/test_standstills.py::test_the_delay_of_a_retry_counts_from_the_end_of_its_wait",
    ),
    Mutation(
        "the horizon of a claim",
        "a job overtakes one whose priority was not known yet",
        "store/queue/claims.py",
        (("         WHERE lines.priority >= (SELECT priority FROM horizon)\n", ""),),
        "tests/store/test_claim_lines.py::test_a_known_priority_does_not_overtake_one_that_is_hidden_by_an_unknown_one",
    ),
    Mutation(
        "the last second of a line",
        "a job that is stamped before it is seen waits for the next look from the very start",
        "store/queue/claims.py",
        (("least(lines.scheduled_at, earlier.at)", "lines.scheduled_at"),),
        "tests/store/test_claim_lines.py::test_a_line_begins_with_its_first_job_but_not_within_the_last_second",
    ),
    Mutation(
        "the check of an offered job",
        "a job is claimed in its backoff",
        "store/queue/claims.py",
        (
            (
                "                   AND greatest(j.scheduled_at, j.retry_after)"
                " <= coalesce($2::timestamptz, now())\n",
                "",
            ),
        ),
        "tests/store/test_claim_lines.py::test_an_offered_job_is_claimed_only_while_it_is_due",
    ),
    Mutation(
        "listening again after a failure",
        "a session that does not listen counts as listening",
        "store/listener.py",
        (
            (
                "            connection.terminate()  # a session",
                "            self._connection = connection  # a session",
            ),
        ),
        "tests/engine/worker/test_standstills.py::test_listening_that_failed_at_first_is_tried_again",
    ),
    Mutation(
        "the early look at an adaptive connection",
        "a run that brought something is followed up only after the long interval",
        "policy/schedule.py",
        (
            (
                "return self.interval if self.shortest is None else self.shortest",
                "return self.interval",
            ),
        ),
        "tests/scenarios/test_adaptive_cadence.py::test_a_run_that_brings_something_begins_at_the_shortest_again",
    ),
    Mutation(
        "the short interval after a trigger",
        "a trigger leaves an adaptive connection at its long interval",
        "store/queue/triggers.py",
        (("AND connection.is_adaptive AND", "AND false AND"),),
        "tests/scenarios/test_adaptive_cadence.py::test_a_trigger_begins_at_the_shortest_again",
    ),
)
