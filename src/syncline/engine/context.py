"""What every part of a running engine shares."""

from dataclasses import dataclass

from syncline.clock import Clock, Dice
from syncline.settings import Settings
from syncline.store.pool import Pool
from syncline.telemetry.engine import Telemetry


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The database, the settings, time, chance and telemetry of one engine."""

    pool: Pool
    settings: Settings
    clock: Clock
    dice: Dice
    telemetry: Telemetry
