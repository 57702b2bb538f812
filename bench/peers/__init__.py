"""One script per peer, run in that peer's own environment; nothing here imports another."""
