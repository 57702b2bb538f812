"""Counts and rates: how everything is doing."""
