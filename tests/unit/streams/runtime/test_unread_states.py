"""A selection role that has just begun decides by what has been learnt, if the store lets it in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from policies import registry
from schemas import topics
from schemas.records import Application, Model, PolicyState, Prediction, Query
from streams.operators.contract import StateKey
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.definition import Role
from streams.runtime.role.loop import STATES_S, RoleLoop
from streams.testing.broker import FakeBroker
from tests.fakes import FakeBroadcast, FakeConsumer, FaultyStore, fake_ports
from tests.loops import CODEC, row
from tests.virtual import VirtualClock, elapse, run

if TYPE_CHECKING:
    from collections.abc import Iterable

MODELS = ("good", "bad")
FOLLOWS = (topics.APPLICATIONS, topics.MODELS)
LEARNT = 9
SLO_S = 2.0  # the store is read in parts, a round trip each


def slow_store(seconds: float) -> FaultyStore:
    """Return a store that answers after so long."""
    store = FaultyStore()
    store.slow_s = seconds
    return store


def learnt(store: FaultyStore, *names: str) -> None:
    """Let the store hold these states."""
    policy = registry.create("exp3", {})
    for name in names:
        store.states[StateKey(0, name)] = PolicyState(registry.spec(policy), MODELS, LEARNT, policy.init(len(MODELS)))


class Selecting:
    """The role on a broker in memory, with queries that were there before it."""

    def __init__(self, store: FaultyStore, *, per_context: bool = False) -> None:
        self.broker = FakeBroker()
        application = Application("digits", MODELS, "exp3", per_context=per_context, slo_ms=SLO_S * 1e3)
        self.broker.put(topics.APPLICATIONS, 0, CODEC.encode(application), key=b"digits")
        for name in MODELS:
            model = Model(name, "1", "function", "", "", "label", "float32", (1,), partitions=1)
            self.broker.put(topics.MODELS, 0, CODEC.encode(model), key=name.encode())
        self.kernel = Selection(CODEC, SelectionSettings(partitions=1))
        role = Role("selection", "selection-1", (topics.QUERIES, topics.MODEL_PREDICTIONS), FOLLOWS)
        consumer = FakeConsumer(self.broker, [(topic, 0) for topic in role.topics])
        ports = fake_ports(self.broker, consumer, store=store, broadcast=FakeBroadcast(self.broker, FOLLOWS))
        self.loop = RoleLoop(role, self.kernel, ports)
        self.asked = 0

    def ask(self, contexts: Iterable[str | None]) -> None:
        """Send queries now."""
        for context in contexts:
            self.asked += 1
            query = Query(f"q{self.asked}", "digits", row(), context, VirtualClock().now_us())
            self.broker.put(topics.QUERIES, 0, CODEC.encode(query))

    async def runs(self, seconds: float) -> None:
        """Let the role run for a while."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.loop.run(stop))
        await elapse(seconds)
        stop.set()
        await task

    def decided_by(self) -> list[int]:
        """Return the version of the state that has decided each query which has been answered in time."""
        answers = [CODEC.decode(Prediction, value) for value in self.broker.values(topics.PREDICTIONS)]
        assert all(answer.answered_us <= answer.deadline_us for answer in answers)
        return [-1 if answer.decision is None else answer.decision.state_version for answer in answers]


@pytest.mark.parametrize("per_context", [False, True])
def test_a_backlog_is_decided_by_what_was_learnt_before_the_restart(per_context: bool) -> None:
    """The store takes 300 ms to answer, and the queries were there first."""

    async def scene() -> None:
        store = slow_store(0.3)
        learnt(store, "digits", *(f"digits/u{n}" for n in range(50)))
        selecting = Selecting(store, per_context=per_context)
        selecting.ask(f"u{n % 50}" for n in range(500))
        await selecting.runs(5)
        assert selecting.decided_by() == [LEARNT] * 500
        assert selecting.kernel.statistics()["states_unread"] == 0

    run(scene())


def test_no_query_is_taken_before_the_states_of_the_applications_are_there() -> None:
    """The role is ready then: not yet when it knows the applications alone."""

    async def scene() -> None:
        store = slow_store(2.0)
        learnt(store, "digits")
        selecting = Selecting(store)
        stop = asyncio.Event()
        task = asyncio.create_task(selecting.loop.run(stop))
        await elapse(1.5)
        assert not selecting.loop.ready.is_set()
        await elapse(1.5)
        assert selecting.loop.ready.is_set()
        selecting.ask([None] * 10)
        await elapse(4)
        stop.set()
        await task
        assert selecting.decided_by() == [LEARNT] * 10

    run(scene())


@pytest.mark.parametrize("per_context", [False, True])
def test_without_a_store_every_query_is_answered_by_its_deadline(per_context: bool) -> None:
    """By the initial state, and that is counted and shown."""

    async def scene() -> None:
        store = slow_store(0.0)
        store.down = True
        selecting = Selecting(store, per_context=per_context)
        stop = asyncio.Event()
        task = asyncio.create_task(selecting.loop.run(stop))
        await elapse(STATES_S + 1)
        assert selecting.loop.ready.is_set()
        selecting.ask(f"u{n}" for n in range(100))
        await elapse(5)
        figures = selecting.kernel.statistics()
        stop.set()
        await task
        assert selecting.decided_by() == [0] * 100
        assert figures["decided_without_state_total{application=digits}"] == 100
        assert figures["states_unread"] == 1

    run(scene())
