"""A connector that only a worker on a slow link has, so that all large pages use that link."""

from faults.connector import Records


class LargeRecords(Records):
    """Reads records with padding."""

    provider = "large-records"
