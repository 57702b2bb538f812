"""A connector that only a worker on a slow link offers, so that all large pages take that link."""

from faults.connector import Records


class LargeRecords(Records):
    """Reads records with padding."""

    provider = "large-records"
