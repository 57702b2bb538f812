"""How many jobs a worker runs at once, if nobody has set a number.

While more is due than the slots allow, every run that ends adds a slot, and a quick one four: fast
connectors reach the ceiling in milliseconds, slow ones double the limit in the time of one run.
Runs that never end must not hold up the others, so time adds a little too. Growth stops while the
loop, the database or the runs are slow, and trouble halves the limit, once a second at most. Slots
that nobody needs for a minute go.
"""

from dataclasses import dataclass

FLOOR, CEILING = 50, 8000
MOST_THREADS = 64
PROGRAMS_PER_CORE = 2
SLOW_LOOP_SECONDS, TROUBLED_LOOP_SECONDS = 0.1, 0.25
SLOW_DATABASE_SECONDS, TROUBLED_DATABASE_SECONDS = 0.5, 2.0
# Runs that wait for each other, for example for a connection to their provider, take the longer
# the more there are. They must end long before their time is up.
SLOW_RUN_SHARE, TROUBLED_RUN_SHARE = 1 / 20, 1 / 4  # of the longest run that is allowed
QUICK_RUN_SHARE = 1 / 300
GROWTH_PER_RUN, GROWTH_PER_QUICK_RUN = 1, 4
GROWTH_PER_SECOND = 0.05
PAGE_BYTES = 256_000_000  # of all runs, each with a page of the usual size
MOST_UNSETTLED = 2  # jobs claimed and not yet settled, as a multiple of the slots
# Beside few slots, some more while their pages are small: settling a hundred jobs takes as long as
# running them (100 slots calling a provider ran 3,290 jobs a second, and 3,570 with these).
FEW_UNSETTLED, FEW_BYTES = 500, 64_000_000
CUT_EVERY_SECONDS = 1.0
UNUSED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker has seen since its limit was last decided.

    The times are the longest, except that of runs, which is the mean like the bytes of a run.
    """

    taken: int  # slots
    ended: int  # runs
    is_more_due: bool  # the last claim returned as many jobs as it asked for
    seconds: float  # since the last decision, if more was due then too
    loop_seconds: float = 0  # for which the event loop was busy with other things
    database_seconds: float = 0  # of a claim, or from the end of a run until it was settled
    run_share: float = 0  # duration of a run, as a share of the longest that is allowed
    run_bytes: float = 0  # of payloads
    seconds_since_cut: float = 0
    seconds_since_more: float = 0  # since more was due than could be claimed

    @property
    def is_troubled(self) -> bool:
        return (
            self.loop_seconds > TROUBLED_LOOP_SECONDS
            or self.database_seconds > TROUBLED_DATABASE_SECONDS
            or self.run_share > TROUBLED_RUN_SHARE
        )

    @property
    def is_slow(self) -> bool:
        return (
            self.loop_seconds > SLOW_LOOP_SECONDS
            or self.database_seconds > SLOW_DATABASE_SECONDS
            or self.run_share > SLOW_RUN_SHARE
        )


def next_limit(limit: float, load: Load) -> float:
    """Return how many slots there should be; a fraction counts for the next decision."""
    if load.is_troubled:
        wanted = limit / 2 if load.seconds_since_cut >= CUT_EVERY_SECONDS else limit
    elif load.is_more_due and not load.is_slow:
        is_quick = load.run_share <= QUICK_RUN_SHARE
        per_run = GROWTH_PER_QUICK_RUN if is_quick else GROWTH_PER_RUN
        wanted = limit + per_run * load.ended + limit * GROWTH_PER_SECOND * min(load.seconds, 1)
    elif load.seconds_since_more >= UNUSED_SECONDS:
        wanted = min(limit, max(limit / 2, 2.0 * load.taken))
    else:
        wanted = limit
    if load.run_bytes > 0:
        wanted = min(wanted, PAGE_BYTES / load.run_bytes)
    return min(max(wanted, FLOOR), CEILING)


def unsettled_room(limit: int, unsettled: int, waiting_bytes: int) -> int:
    """Return how many more jobs may be claimed before others must be settled.

    `waiting_bytes` is the size of the pages that wait to be settled.
    """
    if limit < FEW_UNSETTLED and waiting_bytes < FEW_BYTES:
        return limit + FEW_UNSETTLED - unsettled
    return MOST_UNSETTLED * limit - unsettled
