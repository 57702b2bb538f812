"""The fault suite: real processes, a real Postgres, and everything that can go wrong between."""
