"""Every kind of fault: a name, a sentence, and the function that brings it about."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module

from faults.stage import Stage

Inject = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """`full` and `quick` say how often it is injected in a run."""

    name: str
    sentence: str
    inject: Inject
    full: int
    quick: int


CATALOGUE: dict[str, Kind] = {}


def kind(name: str, *, full: int, quick: int = 1) -> Callable[[Inject], Inject]:
    """Enter a function, whose docstring says what must hold, into the catalogue."""

    def enter(inject: Inject) -> Inject:
        CATALOGUE[name] = Kind(name, (inject.__doc__ or "").strip(), inject, full, quick)
        return inject

    return enter


def load_catalogue() -> dict[str, Kind]:
    for module in ("processes", "network", "database", "hosts", "connectors", "connections"):
        import_module(f"{__name__}.{module}")
    return CATALOGUE
