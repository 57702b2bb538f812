"""Listings by keyset, and signals as they come."""
