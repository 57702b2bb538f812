"""Shares of tenants, and caps."""

from mutations.mutation import Mutation

CAPS = "tests/engine/worker/test_caps.py"
BLOCKS = "tests/store/test_cap_blocks.py"
ORDER = "ORDER BY priority DESC, scheduled_at, id LIMIT $3"
SHARES_TESTS = "tests/engine/worker/test_shares.py"

SHARES = (
    Mutation(
        "what runs under a cap: counted after the lock",
        "a cap is counted in a snapshot that begins before its row is locked",
        "engine/worker/share_book.py",
        (
            (
                "        held, has_new = await caps.lock(tx, keys, now=now, new_for=NEW_FOR)\n",
                "        has_new = True\n",
            ),
            (
                "        if found.has_ended_block:\n",
                "        held, _ = await caps.lock(tx, keys, now=now, new_for=NEW_FOR)\n"
                "        if found.has_ended_block:\n",
            ),
        ),
        "tests/store/test_cap_races.py::test_what_is_claimed_while_a_claim_begins_is_counted_by_it",
    ),
    Mutation(
        "caps that a claim does not know",
        "a process that has not read the caps claims jobs under them",
        "store/queue/claims.py",
        (("SELECT tenant_id, provider_slug FROM {schema}.caps\n", "SELECT '', ''\n"),),
        "tests/store/test_cap_races.py::test_a_claim_that_does_not_know_of_a_cap_leaves_its_jobs",
    ),
    Mutation(
        "blocks of places: counted by everybody",
        "places that a process has taken count only once they are filled",
        "policy/caps.py",
        (("self._room[key] -= places", "self._room[key] -= 0 * places"),),
        f"{BLOCKS}::test_everybody_counts_the_places_of_a_block",
    ),
    Mutation(
        "blocks of places: locked by a claim",
        "a block is dropped while a claim fills it",
        "store/queue/claims.py",
        ((" FOR UPDATE OF mine SKIP LOCKED", ""),),
        f"{BLOCKS}::test_a_block_counts_as_long_as_a_claim_fills_it",
    ),
    Mutation(
        "blocks of places: counted after they are dropped",
        "what a dropped block brought in is not counted",
        "engine/worker/share_book.py",
        (
            (
                "            found = await caps.count(tx, now=now, with_uncounted=all_of_them)\n"
                "        if all_of_them",
                "            found.in_blocks.clear()\n        if all_of_them",
            ),
        ),
        f"{BLOCKS}::test_what_a_block_brought_in_before_it_is_dropped_is_counted",
    ),
    Mutation(
        "blocks of places: another value of the cap",
        "a block of a wider cap is filled under a narrower one",
        "store/queue/claims.py",
        (("USING (tenant_id, provider_slug, max_running)", "USING (tenant_id, provider_slug)"),),
        f"{BLOCKS}::test_a_block_of_another_value_of_the_cap_is_not_used",
    ),
    Mutation(
        "blocks of places: no more than were taken",
        "a process never finishes its block",
        "engine/worker/ample_claims.py",
        (("        block.left.take_all(", "        Counter("),),
        "tests/engine/worker/test_ample_claims.py::test_all_of_a_cap_is_used_and_no_block_twice",
    ),
    Mutation(
        "what runs under a cap: everybody's",
        "jobs that were claimed before the cap was set do not count",
        "engine/worker/share_book.py",
        (
            (
                "has_new or self._has_uncounted or monotonic() >= self._count_all_at",
                "False",
            ),
        ),
        f"{CAPS}::test_a_running_job_counts_until_it_is_reaped",
    ),
    Mutation(
        "what runs under a cap: runs that are being stopped",
        "a cancelled run does not count while its connector goes on",
        "store/queue/caps.py",
        (
            (
                "provider_slug, true FROM {schema}.sync_jobs\n         WHERE",
                "provider_slug, true FROM {schema}.sync_jobs\n         WHERE false AND",
            ),
        ),
        f"{CAPS}::test_a_run_that_was_cancelled_counts_until_it_has_stopped",
    ),
    Mutation(
        "room under a cap: a cap that somebody else holds",
        "a claim takes room under a cap that it could not lock",
        "policy/caps.py",
        (("cap.max_running if cap.key in held else 0", "cap.max_running"),),
        "tests/store/test_cap_races.py::test_a_cap_that_another_claim_holds_has_no_room",
    ),
    Mutation(
        "room under a cap: several caps",
        "a job needs room under one of its caps only",
        "policy/caps.py",
        (
            (
                "(EVERY, provider_slug), (tenant_id, provider_slug))",
                "(EVERY, provider_slug))",
            ),
        ),
        f"{CAPS}::test_a_job_may_be_under_three_caps_at_once",
    ),
    Mutation(
        "turns: tenants within their share",
        "a flood does not yield",
        "policy/shares.py",
        (("    return frozenset(heavy) if has_others", "    return frozenset() if has_others"),),
        f"{SHARES_TESTS}::test_a_flood_yields_to_those_within_their_share",
    ),
    Mutation(
        "turns: chosen jobs before a flood",
        "what stands first fills the claim",
        "store/queue/claims.py",
        (("ORDER BY comes_first DESC, priority DESC, scheduled_at, id LIMIT $3", ORDER),),
        "tests/store/test_claim_lines.py"
        "::test_chosen_jobs_come_before_what_stands_first_and_no_job_comes_twice",
    ),
    Mutation(
        "turns: tenants that ask for more",
        "a flood starves while others have jobs due",
        "policy/shares.py",
        (("    return min(LARGEST_RESERVE, of_heavy / of_all)", "    return 0 * of_all"),),
        f"{SHARES_TESTS}::test_a_flood_does_not_starve",
    ),
    Mutation(
        "turns: weights",
        "weights change nothing",
        "policy/shares.py",
        (("begins + 1 / weights.get(tenant, 1)", "begins + 1"),),
        f"{SHARES_TESTS}::test_weights_divide_what_floods_get",
    ),
)
