"""Runs jobs: claim, attempt, settle, and keep the leases meanwhile."""
