"""A seed of the simulation on a server that others use too; two more live in test_simulator.py.

`make simulate SEEDS=200` lives through many more.
"""

from simulation.life import live

SEED = 6


def test_every_signal_is_stored_once_whatever_happens(database_url: str) -> None:
    report = live(SEED, database_url)

    assert report.failure is None, f"{report.failure}\nagain: make simulate SEED={SEED}"
    assert report.signals > 100
    assert report.faults.total() > 10
