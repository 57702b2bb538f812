"""Retention: what may be deleted, and what must outlive it."""

from mutations.mutation import Mutation

WALKS = "tests/engine/upkeep/test_job_walks.py::"

RETENTION = (
    Mutation(
        "the copy of the last completion",
        "a job is deleted although it alone knows when its connection last ran",
        "store/data/retention.py",
        (("OR j.finished_at <= c.last_finished_at)\n", "OR true)\n"),),
        WALKS + "test_only_job_that_knows_of_a_failed_run_leaves_its_time",
    ),
    Mutation(
        "the copy of the last success",
        "a job is deleted although it alone knows when its connection last succeeded",
        "store/data/retention.py",
        (("OR j.finished_at <= c.last_succeeded_at) OFFSET 0)\n", "OR true) OFFSET 0)\n"),),
        WALKS + "test_last_success_outlives_its_job_also_if_failures_followed",
    ),
    Mutation(
        "the status of pruned jobs",
        "a running job is deleted whose lease lapsed long ago",
        "store/data/retention.py",
        (
            (
                "           AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')\n"
                "           AND (greatest(j.finished_at, j.stops_by, j.lease_expires_at) < $3\n",
                "           AND (greatest(j.finished_at, j.stops_by, j.lease_expires_at) < $3\n",
            ),
        ),
        WALKS + "test_pending_jobs_stay_in_every_walk",
    ),
    Mutation(
        "the cancelled run that may still go on",
        "it is deleted, and its connection's next job starts beside it",
        "store/data/retention.py",
        (("(greatest(j.finished_at, j.stops_by, j.lease_expires_at) < $3", "(j.finished_at < $3"),),
        WALKS + "test_cancelled_run_that_may_still_go_on_stays",
    ),
    Mutation(
        "the pages of a stream",
        "a job that stored signals in an earlier attempt counts as empty",
        "store/queue/jobs.py",
        (("is_empty = coalesce(j.is_empty, true)", "is_empty = true"),),
        WALKS + "test_stream_that_stored_a_page_before_it_failed_is_not_empty",
    ),
    Mutation(
        "the walk over the rest",
        "jobs that every walk has passed stay for ever",
        "engine/upkeep/job_walks.py",
        (("if self._rules.ages and (ranges := self._rest(positions, now)):", "if ranges := []:"),),
        WALKS + "test_job_that_ended_after_every_walk_had_passed_goes_within_a_day",
    ),
    Mutation(
        "the position of a walk",
        "every round begins with the oldest job",
        "engine/upkeep/job_walks.py",
        (
            (
                "after, until = positions.get(name, BEGINNING).last_id, first_id_at(now - age)",
                "after, until = FIRST_ID, first_id_at(now - age)",
            ),
        ),
        WALKS + "test_walk_goes_on_where_another_process_stopped",
    ),
)
