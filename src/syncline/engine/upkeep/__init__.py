"""What a process does besides its jobs: heartbeat, sizes, retention."""
