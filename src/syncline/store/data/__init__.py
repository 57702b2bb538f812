"""Rows by noun: connections, signals, credentials, tenants, keys, workers."""
