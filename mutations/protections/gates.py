"""Providers that limit us or are down: who may call them, and at what cost."""

from mutations.mutation import Mutation

GATES = (
    Mutation(
        "who may start: claims",
        "jobs of a provider that is paused or down are claimed",
        "engine/worker/gatekeeper.py",
        (
            (
                "        if not self._gates:\n            return providers\n",
                "        return providers\n",
            ),
        ),
        "tests/engine/worker/test_gates.py::test_nothing_of_a_paused_provider_is_claimed",
    ),
    Mutation(
        "who may call: runs in progress",
        "runs go on calling a provider that limits the application",
        "http/request.py",
        (("        if environment.closed is not None:\n", "        if False:\n"),),
        "tests/http/test_closed_providers.py::test_a_call_that_would_wait_for_long_is_deferred",
    ),
    Mutation(
        "attempts of a deferred run",
        "a run that had to wait for its provider counts as a failure",
        "policy/outcome.py",
        (
            (
                "case Raised(error) if deferred := find_deferred(error):",
                "case Raised(error) if (deferred := find_deferred(error)) and False:",
            ),
        ),
        "tests/http/test_closed_providers.py::test_a_deferred_run_counts_no_attempt_and_comes_back_in_time",
    ),
    Mutation(
        "what says that a provider is down",
        "the breaker counts `Unauthorized`",
        "policy/breaker.py",
        (
            ("return not isinstance(error, Unauthorized | Permanent)", "return True"),
            (
                "return isinstance(error, Transient | TimeoutError)",
                "return isinstance(error, Transient | TimeoutError | Unauthorized)",
            ),
        ),
        "tests/engine/worker/test_gates.py::test_other_errors_do_not_mean_that_a_provider_is_down",
    ),
    Mutation(
        "attempts once a provider is down",
        "the breaker never opens",
        "policy/breaker.py",
        (("        tally.attempts >= rules.attempts\n", "        False\n"),),
        "tests/engine/worker/test_gates.py::test_a_provider_that_is_down_costs_nobody_their_attempts",
    ),
    Mutation(
        "whose limit it was",
        "limits of several connections close nothing",
        "policy/gates.py",
        (("return connections >= LIMITED_CONNECTIONS", "return False"),),
        "tests/engine/worker/test_gates.py::test_three_connections_that_are_limited_at_once_mean_the_application",
    ),
    Mutation(
        "the way back",
        "a good probe changes nothing",
        "engine/worker/gatekeeper.py",
        (
            (
                "                if await gates.close(tx, gate, now=now, rate=rate):\n",
                "                if False:\n",
            ),
        ),
        "tests/engine/worker/test_gates.py::test_a_good_probe_opens_the_provider_for_everybody",
    ),
    Mutation(
        "the ramp of a fleet that was away",
        "a fleet comes back at full speed if its gates were read before its first claim",
        "engine/worker/gatekeeper.py",
        (("if self._has_come and monotonic()", "if monotonic()"),),
        "tests/engine/worker/test_gates.py::test_it_comes_back_slowly_even_if_the_gates_were_read_before",
    ),
    Mutation(
        "the backlog that a fleet comes back to",
        "what no scheduler has queued is no backlog",
        "store/queue/gates.py",
        (("    if due < count:\n", "    if False:\n"),),
        "tests/engine/worker/test_gates.py::test_a_fleet_comes_back_slowly_to_what_nobody_has_queued",
    ),
)
