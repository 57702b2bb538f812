"""A few seeds of the simulation; `make simulate SEEDS=200` lives through many more."""

import pytest

from simulation.life import live

SEEDS = (6, 29, 30)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_signal_is_stored_once_whatever_happens(seed: int, database_url: str) -> None:
    report = live(seed, database_url)

    assert report.failure is None, f"{report.failure}\nagain: make simulate SEED={seed}"
    assert report.signals > 100
    assert report.faults.total() > 10
