"""What selection reads for a context that it meets for the first time: its own state, and where it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.registry import create, spec
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Decision, JoinStatus, Model, Observation, PolicyState, Prediction, Query
from streams.operators.cold_start import started
from streams.operators.contract import Emit, FetchStates, Record, StateKey
from streams.operators.learn.fold import fold, taught
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.operators.selection.state_view import STALE_US, arms_of
from streams.topology import state_partition

if TYPE_CHECKING:
    from streams.operators.contract import Effects

CODEC = Codec()
NOW_US = 1_700_000_000_000_000
COMMON = StateKey(0, "digits")


class Reading:
    """A selection kernel, and the state keys that it wants."""

    def __init__(self, policy: str, *, per_context: bool = True) -> None:
        self.kernel = Selection(CODEC, SelectionSettings(partitions=1))
        self.kernel.on_partitions({0: 0})
        application = Application("digits", ("a", "b"), policy, per_context=per_context)
        record = Record(topics.APPLICATIONS, 0, 0, NOW_US, b"digits", CODEC.encode(application))
        self.kernel.on_records([record], NOW_US)
        self.asked = 0

    def query(self, context: str, now_us: int = NOW_US) -> list[str]:
        """Ask in a context; returns the names of the states that are read for it, which nothing is stored under."""
        self.asked += 1
        query = Query(f"q{self.asked}", "digits", "", context, now_us)
        effects = self.kernel.on_records([Record(topics.QUERIES, 0, 0, now_us, None, CODEC.encode(query))], now_us)
        keys = [key for effect in effects if isinstance(effect, FetchStates) for key in effect.keys]
        self.kernel.on_states(dict.fromkeys(keys), now_us)
        return [key.name for key in keys]


def test_the_common_state_is_read_with_the_first_new_context_and_again_when_it_is_stale() -> None:
    """Many new contexts at a time cost one reading of it."""
    reading = Reading("exp3")
    assert reading.query("ann") == ["digits", "digits/ann"]
    assert reading.query("bob") == ["digits/bob"]
    assert reading.query("cy", NOW_US + STALE_US) == ["digits", "digits/cy"]
    assert reading.query("dee", NOW_US + STALE_US) == ["digits/dee"]


def wanted(effects: Effects) -> list[StateKey]:
    """Return the states that are to be read."""
    return [key for effect in effects if isinstance(effect, FetchStates) for key in effect.keys]


def test_spread_contexts_start_from_the_common_state_of_their_own_partition() -> None:
    """All common states are read before the first query; a new context decides by its own partition's."""
    kernel = Selection(CODEC, SelectionSettings(partitions=4))
    kernel.on_partitions({0: 0})
    application = Application("digits", ("a", "b"), "exp3", per_context=True, spread=True, slo_ms=1e4)
    record = Record(topics.APPLICATIONS, 0, 0, NOW_US, b"digits", CODEC.encode(application))
    assert wanted(kernel.on_records([record], NOW_US)) == [StateKey(number, "digits") for number in range(4)]
    for name in application.models:
        model = CODEC.encode(Model(name, "1", "function", "", "", "label", None, ()))
        kernel.on_records([Record(topics.MODELS, 0, 0, NOW_US, name.encode(), model)], NOW_US)
    weights = {number: (float(number), 0.0) for number in range(4)}
    common = {
        StateKey(number, "digits"): PolicyState(spec(create("exp3")), ("a", "b"), 9, values)
        for number, values in weights.items()
    }
    kernel.on_states(common, NOW_US)
    seen = set()
    for context in map(str, range(20)):
        query = CODEC.encode(Query(context, "digits", "", context, NOW_US))
        (own,) = wanted(kernel.on_records([Record(topics.QUERIES, 0, 0, NOW_US, None, query)], NOW_US))
        assert own == StateKey(state_partition(f"digits:{context}", 4), f"digits:{context}")
        kernel.on_states({own: None}, NOW_US)
        arms = kernel._states.arms(own, kernel.configuration.applications["digits"])
        assert arms is not None
        begun = started(common[StateKey(own.partition, "digits")], spec(create("exp3")))
        assert arms.weights == arms_of(create("exp3"), application.models, own.name, begun).weights
        seen.add(own.partition)
    assert seen == {*range(4)}


def lesson(second: float, *, forget_s: float, policy: str = "exp3") -> Observation:
    """Make an observation of a context at a time; a context is forgotten after so many seconds."""
    decision = Decision((0,), 0, "digits/ann", spec(create(policy)), ("a", "b"), (0.5, 0.5))
    at_us = int(NOW_US + second * 1e6)
    seen = Observation(f"q{second}", "digits", "ann", decision, (1.0, None), 1.0, 7, JoinStatus.JOINED, at_us, at_us)
    return seen._replace(forget_us=int(forget_s * 1e6))


@pytest.mark.parametrize("policy", ["exp3", "single"])
def test_a_context_without_a_lesson_for_too_long_starts_anew(policy: str) -> None:
    """From what all have taught by then; the common state keeps all lessons. Times are those in the log."""
    lessons = [lesson(second, forget_s=10.0, policy=policy) for second in (0, 5, 15, 25.5, 26)]
    before, after = lessons[:3], lessons[3:]
    common = fold(((0, seen) for seen in before), 1).get("digits")
    anew = {} if common is None else {"digits": common}
    for seen in after:
        anew.update(taught(anew, seen, 0, 1))
    whole = fold(((0, seen) for seen in lessons), 1)
    assert whole == anew
    assert whole["digits/ann"].version == 2
    assert common is None or whole["digits"].version == 5
    for_ever = fold(((0, seen._replace(forget_us=0)) for seen in lessons), 1)
    assert (for_ever["digits/ann"].version, for_ever["digits/ann"].taught_us) == (5, 0)


def test_a_query_of_a_forgotten_context_is_decided_as_that_of_a_new_one() -> None:
    """Though its state is still stored; one of unknown age is not forgotten."""
    kernel = Selection(CODEC, SelectionSettings(partitions=1))
    kernel.on_partitions({0: 0})
    application = Application("digits", ("a", "b"), "exp3", per_context=True, forget_s=10.0, slo_ms=1e3)
    kernel.on_records([Record(topics.APPLICATIONS, 0, 0, NOW_US, b"digits", CODEC.encode(application))], NOW_US)
    for name in application.models:
        model = CODEC.encode(Model(name, "1", "function", "", "", "label", None, ()))
        kernel.on_records([Record(topics.MODELS, 0, 0, NOW_US, name.encode(), model)], NOW_US)
    own = PolicyState(spec(create("exp3")), ("a", "b"), 9, (3.0, 0.0), taught_us=NOW_US)
    states = {StateKey(0, "digits"): own._replace(version=5), StateKey(0, "digits/ann"): own}
    kernel.on_states({**states, StateKey(0, "digits/old"): own._replace(taught_us=0)}, NOW_US)
    versions = []
    for number, (context, after_s) in enumerate([("ann", 0), ("ann", 10), ("ann", 10.5), ("old", 10.5)]):
        now_us = int(NOW_US + after_s * 1e6)
        query = CODEC.encode(Query(f"q{number}", "digits", "", context, now_us))
        kernel.on_records([Record(topics.QUERIES, 0, number, now_us, None, query)], now_us)
        kernel.on_states(states, now_us)
        answers = [e for e in kernel.on_timer(now_us + 10**6) if isinstance(e, Emit) and e.topic == topics.PREDICTIONS]
        (decision,) = [CODEC.decode(Prediction, answer.value).decision for answer in answers]
        assert decision is not None
        versions.append(decision.state_version)
    assert versions == [9, 9, 0, 9]


@pytest.mark.parametrize(("policy", "per_context"), [("single", True), ("exp3", False)])
def test_where_nothing_starts_elsewhere_one_state_is_read(policy: str, *, per_context: bool) -> None:
    """A policy that learns nothing, and an application with one state for all."""
    own = "digits/ann" if per_context else COMMON.name
    assert Reading(policy, per_context=per_context).query("ann") == [own]
