"""What a claim is to bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from syncline.store.queue.claims import Lease


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to claim: of these providers, so many, with so many poison jobs, under this lease."""

    providers: Sequence[str]
    limit: int
    poison_jobs: int
    lease: Lease
    held: Sequence[tuple[str, str]] = ()  # caps that the claim's transaction holds
    block: UUID | None = None  # whose places the claim fills, under all caps
    chosen: Sequence[UUID] = ()  # jobs that come before all others
