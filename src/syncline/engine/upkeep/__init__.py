"""What a process does beside its jobs: heartbeat, sizes, retention."""
