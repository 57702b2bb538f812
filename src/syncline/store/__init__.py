"""Memory: the only place that knows SQL."""
