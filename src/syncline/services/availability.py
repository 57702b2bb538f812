"""Whether an error means that the database is away, not that the request is wrong."""

from syncline.store import errors


def is_unavailable(error: BaseException) -> bool:
    """Return whether the same call may succeed later: the database was away, busy or too slow."""
    return errors.is_passing(error)


def is_unreachable(error: BaseException) -> bool:
    """Return whether no connection to the database can be made now."""
    return errors.is_away(error)
