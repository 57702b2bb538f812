"""Other people's connectors: programs in environments of their own, run as processes."""
