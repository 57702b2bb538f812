"""Proves politeness and fairness with real processes, real Postgres and a provider that counts."""
