"""Between a process's share of a budget and the bucket: what is asked, told and taken."""

from syncline.http.budget_shares import Block, CallLimit, Share
from syncline.policy.budgets import Budget
from syncline.store.queue.budgets import Taken, Taking


def limit_of(budget: Budget) -> CallLimit:
    return CallLimit(
        budget.scope,
        budget.calls or 0,
        budget.members,
        budget.capacity,
        budget.rate,
        budget.hold.total_seconds(),
        budget.per.total_seconds(),
        budget.is_reported,
    )


def taking_of(share: Share, budget: Budget, needed: int, wanted: int) -> Taking:
    """Return what to ask of a bucket; what is told to it is told once."""
    said_left, said_seconds = share.said or (None, None)
    taking = Taking(
        budget,
        share.member,
        needed,
        wanted,
        share.spent,
        share.unused,
        share.unused_since,
        said_left,
        said_seconds,
    )
    share.spent, share.unused, share.unused_since, share.said = 0, 0, None, None
    return taking


def take_over(share: Share, taking: Taking, *, was_sent: bool) -> None:
    """Keep what a bucket was not told, for the next time.

    If it may have been told after all, what was spent counts twice, and what lapsed is lost: there
    is never more room than there should be.
    """
    share.spent += taking.spent
    if share.said is None and taking.said_left is not None and taking.said_seconds is not None:
        share.said = taking.said_left, taking.said_seconds
    if taking.unused and taking.unused_since is not None and not was_sent:
        share.unused += taking.unused
        share.unused_since = min(taking.unused_since, share.unused_since or taking.unused_since)


def add_block(share: Share, taken: Taken, asked_at: float) -> None:
    """Add calls that were taken; they lapse a hold after they were asked for."""
    if taken.taken:
        lapses_at = asked_at + share.limit.hold_seconds
        share.blocks.append(Block(taken.taken, lapses_at, taken.now))
        share.last_block = taken.taken
    share.level, share.seen_at = taken.tokens, asked_at
    share.left = taken.left_calls
    if taken.left_until is not None:
        share.left_until = asked_at + (taken.left_until - taken.now).total_seconds()
