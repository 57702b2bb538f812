"""A machine that does anything to connections in any order, beside a small model of what must hold.

The model knows a connection's status, interval, last completion and pending run, and what its
provider has; everything that the engine stores is compared with it after every step.
"""

import asyncio
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from simulation.life import START
from simulation.model import LEASE, Model, Row
from simulation.stage import Stage
from support.databases import Databases
from syncline import Connection, Connector, Signal, SyncResult, Transient

PAGE = 3
EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "20"))
STATE = """
    SELECT c.external_id, c.status, c.metadata::text AS metadata,
           (SELECT coalesce(json_agg(to_jsonb(j)), '[]') FROM syncline.sync_jobs j
             WHERE j.connection_id = c.id AND j.status IN ('queued', 'running'))::text AS jobs,
           (SELECT coalesce(json_agg((s.payload -> 'number')::int ORDER BY s.id), '[]')
              FROM syncline.signals s WHERE s.connection_id = c.id)::text AS numbers
      FROM syncline.connections c
"""
EDIT = "UPDATE syncline.connections SET metadata = jsonb_set(metadata, $2, $3) WHERE id = $1"


class Provider(Connector):
    """Serves what the models say was emitted; kills its process where it is told to."""

    provider = "github"

    def __init__(self, models: dict[str, Model]) -> None:
        self.models = models
        self.hangs: asyncio.Event | None = None

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        model = self.models[connection.external_id]
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()
        if model.fails_next:
            model.fails_next, model.has_failed = False, True
            raise Transient("not now")
        start, end = cursor or 0, min((cursor or 0) + PAGE, model.emitted)
        return SyncResult(
            [Signal("record", START, {"number": n}) for n in range(start + 1, end + 1)],
            next_cursor=end,
            has_more=end < model.emitted,
        )


class ConnectionsMachine(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self, url: str, databases: Databases) -> None:
        super().__init__()
        databases.empty(url)
        self.models: dict[str, Model] = {}
        self._provider = Provider(self.models)
        self._stage = Stage(url, self._provider)
        self._clock = self._stage.clock
        self._engine = self._stage.engine
        self._do = self._stage.do
        self._made = 0

    def teardown(self) -> None:
        try:
            assert self._do(self._engine.verify()) == []
        finally:
            self._stage.close()

    @initialize(target=names)
    def begin(self) -> Any:
        return multiple(self.create(None), self.create(60))

    @rule(target=names, interval=st.sampled_from([None, 60, 300]))
    def create(self, interval: int | None) -> str:
        self._made += 1
        name = f"account {self._made}"
        made = self._do(
            self._engine.connections.create(
                tenant_id="acme",
                provider_slug="github",
                external_id=name,
                interval_seconds=interval,
            )
        )
        self.models[name] = Model(made.id, self._clock(), interval=interval)
        return name

    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        self._do(self._engine.connections.delete(self.models.pop(name).id))

    @rule(name=names)
    def pause(self, name: str) -> None:
        model = self.models[name]
        self._do(self._engine.connections.pause(model.id))
        model.leave(self._clock())

    @rule(name=names)
    def resume(self, name: str) -> None:
        self._do(self._engine.connections.resume(self.models[name].id))
        self.models[name].status = "active"

    @rule(name=names, interval=st.sampled_from([None, 60, 120, 3600]))
    def set_interval(self, name: str, interval: int | None) -> None:
        self._do(self._engine.connections.set_interval(self.models[name].id, interval))
        self.models[name].interval = interval

    @rule(name=names, interval=st.sampled_from([90, 59, 900.5, "soon", True, -5, [60]]))
    def edit_interval_by_sql(self, name: str, interval: Any) -> None:
        self._edit(name, ["sync", "interval_seconds"], interval)
        self.models[name].interval = interval

    @rule(name=names, key=st.sampled_from(["note", "sync,note"]), number=st.integers(0, 9))
    def edit_a_note_by_sql(self, name: str, key: str, number: int) -> None:
        self._edit(name, key.split(","), number)
        self.models[name].notes[key] = number

    @rule(name=names)
    def trigger(self, name: str) -> None:
        model = self.models[name]
        if model.status != "active":
            with pytest.raises(ValueError, match=model.status):
                self._do(self._engine.trigger(model.id))
            return
        self._do(self._engine.trigger(model.id))
        model.trigger(self._clock())

    @rule(name=names, count=st.integers(1, 2 * PAGE))
    def emit(self, name: str, count: int) -> None:
        self.models[name].emitted += count

    @rule(name=names)
    def fail_next(self, name: str) -> None:
        self.models[name].fails_next = True

    @rule(seconds=st.sampled_from([1, 29, 30, 59, 60, 300, 900, 4000]))
    def advance(self, seconds: int) -> None:
        self._do(asyncio.sleep(seconds))

    @rule()
    def tick(self) -> None:
        self._do(self._engine.tick())
        for name, row in self._state().items():
            self.models[name].tick(row["job"], row["metadata"]["sync"], self._clock())

    @rule()
    def run_due(self) -> None:
        """Whatever is due runs to its last page; what dead workers held comes back first."""
        self._do(self._engine.run_due())
        for name, row in self._state().items():
            self.models[name].reap(row["job"], self._clock())
            self.models[name].execute(row["job"], self._clock())

    @rule(seconds=st.sampled_from([1, 15, 31, 100, 1000]))
    def live(self, seconds: int) -> None:
        """An ordinary round: tick, let time pass, run what is due."""
        self.tick()
        self.advance(seconds)
        self.run_due()

    @precondition(lambda self: self.something_is_due())
    @rule()
    def crash(self) -> None:
        """A worker takes over what lapsed, claims one job, and dies in its connector's call."""
        now = self._clock()
        self._provider.hangs = asyncio.Event()
        self._do(self._stage.claim_and_die(self._provider.hangs))
        self._provider.hangs = None
        for name, row in self._state().items():
            model = self.models[name]
            model.reap(row["job"], now)
            if row["job"] and row["job"]["status"] == "running" and model.run.lapses_at is None:
                assert model.run.is_due(now)
                model.run.lapses_at = now + LEASE

    @invariant()
    def the_engine_agrees_with_the_model(self) -> None:
        state = self._state()
        assert set(state) == set(self.models)
        for name, model in self.models.items():
            model.compare(state[name])

    @rule()
    def verify(self) -> None:
        assert self._do(self._engine.verify()) == []

    def something_is_due(self) -> bool:
        now = self._clock()
        return any(
            model.run is not None and model.run.is_due(now) for model in self.models.values()
        )

    def _edit(self, name: str, path: list[str], value: Any) -> None:
        """Edit one key as a person would, with plain SQL."""
        self._stage.observer.ask(EDIT, self.models[name].id, path, json.dumps(value))

    def _state(self) -> dict[str, Row]:
        """Return how every connection stands, with its pending jobs."""
        state = {}
        for name, *texts in self._stage.observer.ask(STATE):
            status, (metadata, jobs, numbers) = texts[0], map(json.loads, texts[1:])
            state[name] = {
                "status": status,
                "metadata": metadata,
                "jobs": jobs,
                "job": jobs[0] if jobs else None,
                "numbers": numbers,
            }
        return state


def test_connections_behave_whatever_is_done_to_them(
    database_url: str, databases: Databases
) -> None:
    run_state_machine_as_test(
        lambda: ConnectionsMachine(database_url, databases),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate,),  # to explain means to trace every line
            suppress_health_check=list(HealthCheck),
        ),
    )
