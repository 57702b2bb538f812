"""Connectors against real servers, each in its own environment."""
