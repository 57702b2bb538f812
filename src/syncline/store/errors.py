"""Database errors: which of them are temporary, and which come from single rows."""

import asyncpg

# Temporary errors, by SQLSTATE or its beginning, each with its reason (E9: they only cost time).
# An error in neither list is unknown: it is tried again for as long as a lease lasts.
PASSING = {
    "08": "the connection was lost",
    "25006": "the server is read-only: a standby, or a primary that was demoted",
    "25P03": "the session was idle in its transaction for too long",
    "28": "the login was refused: a password is being changed, or the pooler is not ready",
    "40001": "another transaction came first",
    "40P01": "a deadlock, which Postgres ended",
    "53": "out of connections, memory or disk",
    "55000": "the server is not in the right state: it is starting, stopping or being promoted",
    "55P03": "another transaction holds the row",
    "57014": "the statement took too long, or was cancelled",
    "57P": "the server is stopping or starting, or has crashed",
}
# Errors that come from single rows of a batch; the other rows are fine.
IN_ROWS = {
    "22": "a value that Postgres cannot store",
    "23": "a rule that the row breaks",
    "40": "a lost race",
    "54": "a value beyond a limit of Postgres",
    "55P03": "another transaction holds the row",
}

# asyncpg raises the second if a socket dies at an unlucky moment.
LOST_IN_THE_DRIVER = asyncpg.InterfaceError | asyncpg.InternalClientError

LostRace = (
    asyncpg.UniqueViolationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
"""Another session came first or held a lock; this transaction is rolled back."""


class WriteLost(Exception):
    """A write changed another number of rows than expected; the transaction is rolled back."""


class RowHeld(Exception):
    """Another transaction holds a row; waiting for it would occupy a session."""


def expect(touched: int, expected: int, what: str) -> None:
    """Raise `WriteLost` if a write changed another number of rows."""
    if touched != expected:
        raise WriteLost(f"{what}: {touched} rows instead of {expected}")


def is_passing(error: BaseException) -> bool:
    """Return whether the same work may succeed later: the server was away, or a row was locked."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(tuple(PASSING))
    return isinstance(error, LOST_IN_THE_DRIVER | OSError | TimeoutError | WriteLost | RowHeld)


def lies_in_rows(error: BaseException) -> bool:
    """Return whether the error comes from single rows or their locks; other rows are fine."""
    if isinstance(error, WriteLost):
        return True
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(
        tuple(IN_ROWS)
    )


def is_away(error: BaseException) -> bool:
    """Return whether the server cannot be reached, or is not ready; a wrong password is neither."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(("08", "53300", "57P"))
    return isinstance(error, LOST_IN_THE_DRIVER | OSError | TimeoutError)


def is_held(error: BaseException) -> bool:
    """Return whether another transaction held a row for too long."""
    return isinstance(error, asyncpg.LockNotAvailableError)


def is_timeout(error: BaseException) -> bool:
    """Return whether the server did not answer in time: it is away, or the statement too large."""
    return isinstance(error, TimeoutError | asyncpg.QueryCanceledError)


def missing_right(error: BaseException) -> str | None:
    """Return the database's message about a missing right; None for other errors."""
    return str(error) if isinstance(error, asyncpg.InsufficientPrivilegeError) else None
