"""The benchmark: Syncline next to its peers, on one Postgres, in one run."""
