"""Any JSON API, by configuration alone."""

from syncline.connectors.rest.connector import Rest

__all__ = ["Rest"]
