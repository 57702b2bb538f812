"""The results of a run: every figure of every trial, round by round, and the machine."""

import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from bench.contenders import SYNCLINE
from bench.measure import Figures
from bench.plan import Trial

T = TypeVar("T")
Key = tuple[str, str, str, str]
"""Workload, variant, contender, figure."""


@dataclass(frozen=True)
class Spread:
    """A median, with the lowest and the highest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return shown(self.median)
        return f"{shown(self.median)} [{shown(self.low)} … {shown(self.high)}]"


@dataclass
class Results:
    """The figures by key and round, the machine, and what is missing."""

    machine: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    values: dict[Key, dict[int, float]] = field(default_factory=dict)

    def add(self, trial: Trial, number: int, figures: Figures) -> None:
        for name, value in figures.items():
            key = (trial.workload, trial.variant, trial.contender, name)
            self.values.setdefault(key, {})[number] = value

    def by_round(
        self, workload: str, variant: str, figure: str, contender: str = SYNCLINE
    ) -> dict[int, float]:
        """Return a figure's value in each round, or nothing if it was not measured."""
        return self.values.get((workload, variant, contender, figure), {})

    def variants(self, workload: str) -> list[str]:
        return _unique(key[1] for key in self.values if key[0] == workload)

    def workloads(self) -> list[str]:
        return _unique(key[0] for key in self.values)

    def rows(self, workload: str) -> list[tuple[str, str]]:
        """Return the variants and contenders of a workload, in the order they were measured."""
        found = _unique((key[1], key[2]) for key in self.values if key[0] == workload)
        return sorted(found, key=lambda row: row[1] != SYNCLINE)

    def figures(self, workload: str) -> list[str]:
        return _unique(key[3] for key in self.values if key[0] == workload)

    def spread(self, key: Key) -> Spread | None:
        values = self.values.get(key)
        return Spread.of(list(values.values())) if values else None

    def as_json(self) -> dict[str, Any]:
        names = ("workload", "variant", "contender", "figure")
        figures = [
            dict(zip(names, key, strict=True))
            | asdict(Spread.of(list(values.values())))
            | {"rounds": [values[number] for number in sorted(values)]}
            for key, values in self.values.items()
        ]
        return {
            "machine": self.machine,
            "settings": self.settings,
            "absent": self.absent,
            "failed": self.failed,
            "figures": figures,
        }


def describe_machine(postgres: str) -> dict[str, str]:
    """Return what the figures depend on: hardware, versions, load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{os.cpu_count()} of {_processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "postgres": postgres.removeprefix("postgres "),
        "python": platform.python_version(),
        "node": _said("node", "--version") or "none",
        "asyncpg": version("asyncpg"),
        "uvloop": version("uvloop"),
        "syncline": f"{version('syncline')} ({_said('git', 'describe', '--always', '--dirty')})",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def shown(value: float) -> str:
    """Return a number with three significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _unique(values: Iterator[T]) -> list[T]:
    return list(dict.fromkeys(values))
