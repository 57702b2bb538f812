"""Put the clock of one database ahead, without a library below Postgres.

The functions that return the time are replaced by others that add to it. A statement keeps the
clock that it was planned with, so sessions have to be reopened.
"""

RESTORE = """
    CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz
        LANGUAGE internal VOLATILE AS 'clock_timestamp';
    CREATE OR REPLACE FUNCTION pg_catalog.now() RETURNS timestamptz
        LANGUAGE internal STABLE AS 'now';
"""


def shift_clock(by: str) -> str:
    """Return SQL that puts the clock of one database ahead, by "2 hours" for instance."""
    return f"""
        CREATE SCHEMA IF NOT EXISTS real;
        CREATE OR REPLACE FUNCTION real.clock_timestamp() RETURNS timestamptz
            LANGUAGE internal VOLATILE AS 'clock_timestamp';
        CREATE OR REPLACE FUNCTION real.now() RETURNS timestamptz
            LANGUAGE internal STABLE AS 'now';
        CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz
            LANGUAGE sql VOLATILE AS $$ SELECT real.clock_timestamp() + interval '{by}' $$;
        CREATE OR REPLACE FUNCTION pg_catalog.now() RETURNS timestamptz
            LANGUAGE sql STABLE AS $$ SELECT real.now() + interval '{by}' $$;
    """
