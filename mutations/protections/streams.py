"""Streams: each page on top of the one before it."""

from mutations.mutation import Mutation

STREAMS = (
    Mutation(
        "the slot of a stream that waits for a held row",
        "a few held streams stop the worker",
        "engine/worker/streams.py",
        (
            (
                "self._runs.lend_slot(run)",
                "pass",
            ),
        ),
        "tests/engine/worker/test_standstills.py"
        "::test_a_stream_that_waits_for_a_held_row_lends_its_slot",
    ),
    Mutation(
        "the lease of a streamed page",
        "a worker stores pages of a job that it no longer has",
        "store/queue/streams.py",
        (
            (
                "WHERE j.id = ANY (ARRAY[page.id]) AND j.lease_token IS NOT DISTINCT FROM"
                " page.token",
                "WHERE j.id = page.id AND page.token IS NOT NULL",
            ),
        ),
        "tests/store/test_stream_races.py::test_a_first_page_is_not_stored_under_the_lease_of_another",
    ),
    Mutation(
        "the cursor of a streamed page on its job",
        "a job that died in mid-stream starts over",
        "store/queue/streams.py",
        (("SET cursor = coalesce(page.cursor, j.cursor),", "SET cursor = j.cursor,"),),
        "tests/engine/worker/test_stream_rules.py::test_a_stream_runs_to_its_end_in_one_job",
    ),
    Mutation(
        "pages on top of pages",
        "a stream continues after pages that a failover lost",
        "store/queue/streams.py",
        (("AND j.committed_pages = page.pages_before", ""),),
        "tests/engine/worker/test_lost_commits.py::test_a_stream_starts_again_where_a_failover_lost_its_pages",
    ),
    Mutation(
        "a repeated page after others were lost",
        "it counts as stored although it is not",
        "engine/worker/streams.py",
        (("if is_repeated and found.committed_pages == before + 1:", "if is_repeated:"),),
        "tests/store/test_stream_races.py::test_a_page_whose_answer_was_lost_in_a_failover_is_not_taken_for_stored",
    ),
    Mutation(
        "a repeated page that was already stored",
        "the run ends although nothing was lost",
        "engine/worker/streams.py",
        (("if is_repeated and found.committed_pages == before + 1:", "if False:"),),
        "tests/store/test_stream_races.py::test_a_page_whose_answer_was_lost_is_not_stored_twice",
    ),
    Mutation(
        "a stream whose cursor was moved",
        "it continues from its own cursor, not from the one that a person set",
        "engine/worker/streams.py",
        (("                if cursor_was_moved:\n", "                if False:\n"),),
        "tests/engine/worker/test_lost_commits.py::test_a_cursor_that_was_set_during_a_stream_is_where_it_goes_on",
    ),
    Mutation(
        "the cursor that a stream compares with",
        "its second page takes the first page's cursor for a person's",
        "engine/worker/runs.py",
        (("            self.claim.stored_cursor = cursor\n", "            pass\n"),),
        "tests/engine/worker/test_stream_rules.py::test_a_stream_runs_to_its_end_in_one_job",
    ),
)
