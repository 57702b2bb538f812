"""The queue: what is due, who claims it, and how it ends."""
