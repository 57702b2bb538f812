"""The benchmark: Syncline beside its peers, on one Postgres, in one run."""
