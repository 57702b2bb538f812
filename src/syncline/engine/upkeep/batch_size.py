"""How many rows one transaction removes."""

BATCH_SECONDS = 0.05  # what a batch should take: short enough that nobody waits long for it
FEWEST_ROWS, MOST_ROWS = 500, 20_000


class BatchSize:
    """Grows and shrinks so that a batch takes about `BATCH_SECONDS`."""

    def __init__(self) -> None:
        self.rows = FEWEST_ROWS

    def learn(self, seconds: float, *, is_full: bool) -> None:
        """Adapt to the time that a batch took; one that was not full says nothing about more."""
        factor = BATCH_SECONDS / seconds if seconds > 0 else 2
        factor = min(max(factor, 0.5), 2 if is_full else 1)
        self.rows = round(min(max(self.rows * factor, FEWEST_ROWS), MOST_ROWS))
