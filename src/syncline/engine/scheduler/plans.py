"""What a batch of locked connections comes to, by the policy."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from syncline.clock import Dice
from syncline.policy.schedule import (
    Candidate,
    Pull,
    RunPlan,
    SyncOptions,
    next_slot_at,
    plan_run,
    pull_to_new_interval,
    read_sync,
)
from syncline.settings import SchedulerSettings
from syncline.telemetry.engine import Telemetry


@dataclass(slots=True)
class Decisions:
    """What is to be written for a batch of candidates."""

    plans: list[RunPlan] = field(default_factory=list)
    later: list[tuple[UUID, datetime]] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    held: int = 0
    overdue: int = 0


class Planner:
    """Applies the policy to candidates, and complains about what cannot be meant."""

    def __init__(self, settings: SchedulerSettings, dice: Dice, telemetry: Telemetry) -> None:
        self._rules = settings.rules
        self._lookahead = settings.lookahead
        self._dice = dice
        self._telemetry = telemetry

    def decide(self, candidates: Iterable[Candidate], now: datetime) -> Decisions:
        horizon = now + self._lookahead
        decisions = Decisions()
        for candidate in candidates:
            options = read_sync(candidate.stored, self._rules)
            for complaint in options.complaints:
                self._telemetry.bad_metadata(
                    candidate.connection_id, complaint.key, complaint.reason
                )
            if candidate.has_pending_job:
                decisions.held += next_slot_at(candidate, options, now) <= horizon
                self._leave_pending(candidate, options, now, decisions)
                continue
            plan = plan_run(candidate, options, self._rules, now, self._dice.roll())
            decisions.overdue += plan.slot_at <= now
            if plan.slot_at <= horizon:
                decisions.plans.append(plan)
            else:
                decisions.later.append((plan.connection_id, plan.slot_at))
        return decisions

    def _leave_pending(
        self, candidate: Candidate, options: SyncOptions, now: datetime, decisions: Decisions
    ) -> None:
        """Look again when the job may have run; a new interval may pull it forward."""
        decisions.later.append((candidate.connection_id, now + options.interval))
        pull = pull_to_new_interval(candidate, options, self._rules, now)
        if pull is not None:
            decisions.pulls.append(pull)
