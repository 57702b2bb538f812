"""The cases, by what they prove; each is a function of a stage that returns figures."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fairness.measure import Figure
from fairness.stage import Stage

Run = Callable[[Stage], Awaitable[Sequence[Figure]]]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    promise: str
    applications: Sequence[str]
    run: Run
    group: int = 0  # groups follow each other; the cases of one run at the same time
    is_quick: bool = True  # also in the short form


def load_cases() -> list[Case]:
    from fairness.cases import budgets, caps, costs, floods, limits, outages

    modules = (budgets, limits, outages, caps, floods, costs)
    return [case for module in modules for case in module.CASES]
