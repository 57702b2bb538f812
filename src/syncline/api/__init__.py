"""The HTTP server: API, dashboard, probes and metrics."""
