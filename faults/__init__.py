"""The fault suite: real processes, a real Postgres, and all that can go wrong between."""
