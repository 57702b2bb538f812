"""Credentials during a run: opened, refreshed, and never shown."""
