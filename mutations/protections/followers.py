"""Followers: what was stored, in an order that survives a failover."""

from mutations.mutation import Mutation

FOLLOWERS = (
    Mutation(
        "the horizon of a follower",
        "it reads all committed rows, although older transactions still run",
        "store/listings/follow.py",
        (
            (
                "pg_snapshot_xmin(pg_catalog.pg_current_snapshot())",
                "pg_snapshot_xmax(pg_catalog.pg_current_snapshot())",
            ),
        ),
        "tests/store/test_following.py::test_a_transaction_that_commits_late_is_neither_missed_nor_repeated",
    ),
    Mutation(
        "the order of a follower",
        "transactions are sorted as text",
        "store/listings/follow.py",
        (("ORDER BY s.server_start, s.transaction_id, s", "ORDER BY s.transaction_id::text, s"),),
        "tests/store/test_following.py::test_transactions_are_in_the_order_of_numbers_not_of_texts",
    ),
    Mutation(
        "the start of a server that a follower has not read",
        "transactions count as read by number, although a promoted standby reuses the numbers",
        "store/listings/follow.py",
        (("after if place == 0 else (0, FIRST_ID),", "after,"),),
        "tests/store/test_following_histories.py::test_promotion_of_a_lagging_standby_hides_nothing",
    ),
    Mutation(
        "the start of a server that has ended",
        "what it stored is held back while its numbers are ahead of the present server's",
        "store/listings/follow.py",
        (("below if place == len(starts) - 1 else ALL_TRANSACTIONS,", "below,"),),
        "tests/store/test_following_histories.py::test_dump_and_restore_into_another_cluster_hides_nothing",
    ),
    Mutation(
        "a position of an unknown start",
        "a follower receives everything again as if it were new",
        "store/listings/follow.py",
        (
            (
                'raise PositionLost("is of signals that this database does not know")',
                "return in_order",
            ),
        ),
        "tests/store/test_following_histories.py::test_a_position_of_an_unknown_start_is_refused",
    ),
    Mutation(
        "a position ahead of its database",
        "a follower gets nothing until the numbers reach its position",
        "store/listings/follow.py",
        (("    if len(starts) == 1 and position.transaction > below:\n", "    if False:\n"),),
        "tests/store/test_following.py::test_a_position_of_another_database_is_refused",
    ),
    Mutation(
        "the numbers of server starts",
        "starts are read in the order of clocks",
        "engine/upkeep/heartbeat.py",
        (("            await server_starts.number_present(tx)\n", "            pass\n"),),
        "tests/store/test_following_histories.py::test_starts_are_read_in_their_order_whatever_clocks_say",
    ),
    Mutation(
        "server starts without a number",
        "followers never receive their signals",
        "store/data/server_starts.py",
        (("await _find_unnumbered(tx, [*numbered, present])", "list[datetime]()"),),
        "tests/store/test_following_histories.py::test_a_subscriber_that_takes_over_hides_nothing",
    ),
    Mutation(
        "the start of a standby",
        "what its primary stores counts as complete",
        "store/listings/follow.py",
        (("    if is_standby and len(in_order) > 1:\n", "    if False:\n"),),
        "tests/store/test_following_histories.py::test_a_standby_is_followed_up_to_what_still_runs_on_its_primary",
    ),
    Mutation(
        "positions of version 0.1",
        "they count as positions of the server's present start",
        "store/listings/follow.py",
        (("position.server_start or starts.older", "position.server_start or present"),),
        "tests/store/test_following_histories.py::test_positions_of_version_0_1_go_on",
    ),
    Mutation(
        "the limit on scanned rows",
        "a follower with a rare filter reads to the end before it gets a position",
        "store/listings/follow.py",
        (("budget = limit if wanted == SignalFilter() else ROWS_SCANNED", "budget = 2**31"),),
        "tests/store/test_following.py::test_only_what_is_wanted_is_told",
    ),
    Mutation(
        "the index of a follower",
        "a late page of a large transaction reads all of it",
        "store/listings/follow.py",
        (
            (
                "AND (s.transaction_id, s.id) > ($2::text::xid8, $3::uuid)",
                "AND (s.transaction_id > $2::text::xid8"
                " OR s.transaction_id = $2::text::xid8 AND s.id > $3::uuid)",
            ),
        ),
        "tests/store/test_following_histories.py::test_a_late_page_of_a_large_transaction_costs_what_an_early_one_does",
    ),
)
