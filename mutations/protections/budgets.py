"""Budgets: how many calls may be made, and what it costs who finds no room."""

from mutations.mutation import Mutation

BUDGETS = (
    Mutation(
        "calls in any window",
        "the bucket's rate forgets the hold and the burst",
        "policy/budgets.py",
        (
            ("room = self.calls + 1 - self.capacity", "room = self.calls"),
            ("(self.per + self.hold).total_seconds()", "self.per.total_seconds()"),
        ),
        "tests/policy/test_budgets.py::test_no_window_is_overdrawn_however_calls_are_taken_and_held",
    ),
    Mutation(
        "two processes that take at once",
        "a bucket is read without its lock",
        "store/queue/budgets.py",
        (("           FOR NO KEY UPDATE OF bucket\n", ""),),
        "tests/store/test_budgets.py::test_of_two_who_take_at_once_each_gets_his_own",
    ),
    Mutation(
        "calls that are put back",
        "calls are put back into a bucket that was full since",
        "store/queue/budgets.py",
        (("AND clipped_at <= unused_since\n", "AND true\n"),),
        "tests/store/test_budgets.py::test_calls_are_not_put_back_into_a_bucket_that_was_full_since",
    ),
    Mutation(
        "what the provider says",
        "a provider's remainder raises ours",
        "store/queue/budgets.py",
        (("WHEN left_until > now THEN said_left < left_calls", "WHEN false THEN false"),),
        "tests/store/test_budgets.py::test_what_the_provider_says_lowers_what_is_left",
    ),
    Mutation(
        "calls of self.http",
        "calls are sent without being taken",
        "http/request.py",
        (("        await budgets.take(self._spender)\n        most =", "        most ="),),
        "tests/engine/worker/test_budgets.py::test_a_run_that_finds_no_room_is_deferred",
    ),
    Mutation(
        "jobs before the claim",
        "jobs are claimed whose budget has no room",
        "engine/worker/budgets.py",
        (
            (
                "        if not self._common:\n            return []\n        now = monotonic()\n",
                "        return []\n        now = monotonic()\n",
            ),
        ),
        "tests/engine/worker/test_budgets.py::test_a_job_whose_budget_has_no_room_is_not_claimed",
    ),
    Mutation(
        "a deferred job's wait",
        "a trigger ends the wait for a budget",
        "store/queue/triggers.py",
        (("OR j.deferred_until = j.retry_after", "OR false"),),
        "tests/engine/worker/test_budgets.py::test_a_trigger_does_not_end_a_deferral",
    ),
    Mutation(
        "runs that say nothing",
        "a connector with a client of its own costs no budget",
        "http/budgets.py",
        (("            self._spend_now(spender, 1)\n", ""),),
        "tests/engine/worker/test_budgets.py::test_connectors_with_a_client_of_their_own_say_what_they_spend",
    ),
    Mutation(
        "providers that share a budget",
        "a limit closes one provider of a shared budget",
        "engine/worker/gatekeeper.py",
        (("for slug in self.budgets.sharing(first):", "for slug in (first,):"),),
        "tests/engine/worker/test_budgets.py::test_a_limit_of_the_application_closes_all_providers_of_the_scope",
    ),
)
