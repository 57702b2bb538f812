"""What this process has seen since it last wrote its figures, by provider."""

from collections import Counter
from collections.abc import Hashable, Iterator

from syncline.policy.figures import SUCCEEDED, Histogram, Tally
from syncline.telemetry.metrics import BatchHistogram, ExecutorMetrics


class FigureBook:
    """Reads the metrics, which count everything already: a run costs nothing more."""

    def __init__(self, executor: ExecutorMetrics) -> None:
        self._executor = executor
        self._taken: dict[Hashable, int] = {}  # what each count was when it was last taken

    def take(self) -> dict[str, Tally]:
        """Return what has happened since the last time."""
        found: dict[str, Tally] = {}
        for slug, tally in self._since():
            found.setdefault(slug, Tally()).add(tally)
        return {slug: tally for slug, tally in found.items() if not tally.is_empty}

    def _since(self) -> Iterator[tuple[str, Tally]]:
        executor = self._executor
        for slug, one in executor.succeeded.items():
            count = self._grown((SUCCEEDED, slug), one._value.get())
            yield str(slug), Tally(Counter({SUCCEEDED: count}) if count else Counter())
        for labels, one in executor.failed.items():
            slug, error_class = tuple(labels)
            count = self._grown(("failed", slug, error_class), one._value.get())
            yield slug, Tally(Counter({error_class: count}) if count else Counter())
        for slug, one in executor.signals.items():
            yield str(slug), Tally(signals=self._grown(("signals", slug), one._value.get()))
        for labels, histogram in executor.run.items():
            slug, outcome = tuple(labels)
            yield slug, Tally(durations=self._buckets(("run", slug, outcome), histogram))
        for slug, histogram in executor.claim_delay.items():
            yield str(slug), Tally(delays=self._buckets(("delay", slug), histogram))
        for slug, gauge in executor.queue_depth.items():
            yield str(slug), Tally(backlog=int(gauge._value.get()))

    def _buckets(self, name: tuple[Hashable, ...], one: BatchHistogram) -> Histogram:
        grown = (
            (place, self._grown((*name, place), bucket.get()))
            for place, bucket in enumerate(one._buckets)
        )
        return Histogram({place: count for place, count in grown if count})

    def _grown(self, name: Hashable, count: float) -> int:
        """Return by how much a count has grown since it was last taken."""
        before = self._taken.get(name, 0)
        self._taken[name] = int(count)
        return int(count) - before
