"""Connectors against servers that other people wrote, each in an environment of its own."""
