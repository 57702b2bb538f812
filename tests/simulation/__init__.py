"""A deterministic simulation: real engines on real Postgres; one seed decides everything else."""
