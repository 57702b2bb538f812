"""Every kind of fault: a name, what must hold, and the function that injects it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module

from faults.stage import Stage

Inject = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """`full` and `quick` say how often it is injected. `loses_claims` says that the database may
    forget who runs a job, or give it away early, so that two workers call at once."""

    name: str
    family: str
    sentence: str
    inject: Inject
    full: int
    quick: int
    loses_claims: bool


CATALOGUE: dict[str, Kind] = {}


def kind(
    name: str, *, full: int, quick: int = 1, loses_claims: bool = False
) -> Callable[[Inject], Inject]:
    """Add a function, whose docstring says what must hold, to the catalogue."""

    def enter(inject: Inject) -> Inject:
        family = inject.__module__.rpartition(".")[2]
        CATALOGUE[name] = Kind(
            name, family, inject.__doc__ or "", inject, full, quick, loses_claims
        )
        return inject

    return enter


def load_catalogue() -> dict[str, Kind]:
    for module in (
        "processes",
        "network",
        "database",
        "locks",
        "clocks",
        "hosts",
        "connectors",
        "connections",
        "failover",
    ):
        import_module(f"{__name__}.{module}")
    return CATALOGUE
