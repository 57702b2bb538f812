"""How rough the world of a seed is: who dies, what breaks, and how often."""

import asyncio
import random
from dataclasses import dataclass

from simulation.bandwidth import Speed
from simulation.link import Fate, Link
from simulation.loop import Process
from simulation.network import SimulatedNetwork
from simulation.wire import Request
from simulation.workers import Workers

FAULTS = (Fate.CUT_BEFORE, Fate.CUT_AFTER, Fate.KILL_BEFORE, Fate.KILL_AFTER)
LONGEST_LINGER_SECONDS = 1.5
LONGEST_OUTAGE_SECONDS = 40
LONGEST_FREEZE_SECONDS = 30
LONGEST_SLOW_SECONDS, LONGEST_LATENCY = 60, 0.2
LEAST_SPEED, MOST_SPEED = 4, 6  # bytes a second, as powers of ten
STORMS = (
    *("kill", "kill", "freeze", "freeze", "stop", "cut", "outage"),
    *("slow", "slow", "logins", "read-only"),
)


@dataclass(frozen=True, slots=True)
class Climate:
    """The odds of a seed: faults per call and per COMMIT, and seconds between two storms."""

    per_call: float
    per_commit: float
    seconds_between_storms: float


def climate_of(rng: random.Random) -> Climate:
    roughness = rng.choice((0.1, 0.3, 1.0, 1.0, 3.0))
    return Climate(
        per_call=0.003 * roughness,
        per_commit=0.015 * roughness,
        seconds_between_storms=25 / roughness,
    )


class Weather:
    """Decides, from the seed alone, whose call is next and what becomes of it."""

    def __init__(self, rng: random.Random, climate: Climate) -> None:
        self._rng = rng
        self._climate = climate
        self.is_calm = False

    def linger(self) -> float:
        """Return how late everybody's timers are, so that many come due at once."""
        return self._rng.choice((0, 0, self._rng.uniform(0, LONGEST_LINGER_SECONDS)))

    def choose(self, count: int) -> int:
        return self._rng.randrange(count)

    def fate_of(self, link: Link, request: Request) -> Fate:
        if self.is_calm or not link.process.is_mortal or link.process.is_frozen:
            return Fate.PASS
        odds = self._climate.per_commit if request.is_commit else self._climate.per_call
        return self._rng.choice(FAULTS) if self._rng.random() < odds else Fate.PASS


class Storms:
    """Greater faults, at any time: mostly while connectors wait for their provider."""

    def __init__(
        self,
        rng: random.Random,
        climate: Climate,
        network: SimulatedNetwork,
        workers: Workers,
    ) -> None:
        self._rng = rng
        self._climate = climate
        self._network = network
        self._workers = workers

    async def blow(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._climate.seconds_between_storms))
            if awake := self._workers.awake:
                await self._strike(self._rng.choice(awake))

    async def _strike(self, process: Process) -> None:
        rng, workers, network = self._rng, self._workers, self._network
        match rng.choice(STORMS):
            case "kill":
                network.kill(process)
            case "freeze":
                workers.freeze(process, rng.uniform(1, LONGEST_FREEZE_SECONDS))
            case "stop":
                workers.stop(process)
            case "cut":
                for link in network.links_of(process):
                    network.cut(link, "cut in passing")
            case "slow":
                seconds = rng.uniform(5, LONGEST_SLOW_SECONDS)
                network.slow_down(process, self._speed(), seconds)
            case "outage":
                network.go_down()
                await asyncio.sleep(rng.uniform(1, LONGEST_OUTAGE_SECONDS))
                network.is_down = False
            case "logins":
                with network.refusing_logins():
                    await asyncio.sleep(rng.uniform(1, LONGEST_OUTAGE_SECONDS))
            case "read-only":
                with network.read_only():
                    await asyncio.sleep(rng.uniform(1, LONGEST_OUTAGE_SECONDS))

    def _speed(self) -> Speed:
        rng = self._rng
        return Speed(10 ** rng.uniform(LEAST_SPEED, MOST_SPEED), rng.uniform(0, LONGEST_LATENCY))
