"""What the simulator is for: rules that were wrong, put back, break its laws; the same plans keep them as it is now."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from load.research.seeds.askers import GATEWAY
from load.research.seeds.faults import Fault
from load.research.seeds.mapped import ROLE, drawn_mapping
from load.research.seeds.plan import COMPUTING, MODELS, Burst, Deploy, plan, with_mapping
from load.research.seeds.world import simulate
from policies import registry
from streams.operators.contract import LOOKED_UP, NONE_UNREAD, Span
from streams.operators.ids import IdTimes
from streams.operators.join import observation, outcomes
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.selection import answer
from streams.operators.selection.features import lookup as features
from streams.promotion import apprentice
from streams.replay.recording import TapeInputs
from streams.runtime.role import accumulator as lanes
from streams.runtime.role.state_queue import StateQueue
from streams.runtime.stores.base import MemoryStore, WriteResult
from streams.testing.consumers import SimulatedConsumer
from streams.testing.stores import SharedStore
from streams.topology import worker_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from load.research.seeds.plan import Plan
    from streams.operators.contract import Batch, Effects, Record, StateKey, Unread, WriteStates
    from streams.operators.selection.pending import Pending
    from streams.runtime.ports import TopicPartition
    from streams.runtime.stores.base import StatesRead
    from streams.tape.calls import RecordRun

LEARNT_TWICE = (9,)  # seeds of `busy_learners`
STORED_WRONG = (7, 14)  # others: somebody reads what a former owner has stored, before the new one stores its own
IDLE = {
    "a transaction's end": Fault(20.0, "transaction", target="queries-0"),
    "retention": Fault(10.0, "overtaken", 20.0, "worker.good"),
}

pytestmark = pytest.mark.timeout(120)


class TrustingStore(MemoryStore):
    """Takes a write whose offset is there already for its own, and does not say which offset states belong to."""

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Return states of whatever offset is expected."""
        found = await super().read(keys)
        return found._replace(offsets=dict.fromkeys(found.offsets, ANY))

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Accept it."""
        verdict = await super().write(write, token)
        return WriteResult(True, verdict.stored, token) if verdict.stored == write.offset else verdict


class HastyJoiner(Joiner):
    """Ends windows by the clock, whatever feedback is still to be read."""

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Forget what is unread."""
        return super().on_timer(now_us)


class CountingConsumer(SimulatedConsumer):
    """Takes what lies after the last record that it got for records that wait."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._next: dict[TopicPartition, int] = {}

    def _take(self, only: frozenset[str] | None) -> list[Record]:
        self._next = {place: self._next.get(place, position) for place, position in self._positions.items()}
        found = super()._take(only)
        self._next |= {(record.topic, record.partition): record.offset + 1 for record in found}
        return found

    def _lag(self) -> int:
        return sum(max(0, self._highs.get(place, 0) - offset) for place, offset in self._next.items())


def small(seed: int, length_s: float, rate: float, *faults: Fault, processes: str = "each") -> Plan:
    """Return a deployment with one process of each role, and with small windows, so that little time has to pass."""
    given = plan(seed, length_s / 60, processes)
    applications = tuple(
        replace(
            given.applications[0],
            name=f"app{n}",
            policy="exp3",
            parameters={},
            per_context=n > 0,
            window_s=5.0,
            default_loss=None,
            sources=(),
        )
        for n in range(2)
    )
    return replace(
        given,
        applications=applications,
        faults=faults,
        changes=(),
        replicas={role: 1 for role in given.replicas if role not in (ROLE, GATEWAY, *map(worker_role, COMPUTING))},
        mapped=None,
        askers=None,
        faulty=0.0,
        joiner=JoinerSettings(2, window_us=5_000_000, early_us=2_000_000),
        parked=0.0,
        commit_s=0.5,
        bursts=(Burst(2.0, min(length_s - 5, 115.0), rate),),
    )


def mapped() -> Plan:
    """Return a deployment that has orders and truths of others besides."""
    drawn = next(filter(None, (drawn_mapping(seed, 25.0, MODELS) for seed in count(1))))
    application = replace(drawn.application, window_s=5.0)
    partitions = dict.fromkeys(drawn.partitions, 2)
    its = replace(drawn, application=application, changed=None, faults=(), partitions=partitions, rate=1.0)
    return with_mapping(small(1, 25.0, 4.0), its)


def idle_mapping() -> Plan:
    """A mapping that has read nothing when it goes away, for longer than a topic is read back that is new to it."""
    given = mapped()
    assert given.mapped is not None
    its = replace(given.mapped.application, mapping=given.mapped.application.mapping.replace("earliest", "latest"))
    return replace(
        given,
        length_s=1_000.0,
        applications=(*given.asked, its),
        mapped=replace(given.mapped, application=its),
        replicas={**given.replicas, ROLE: 1},
        bursts=(Burst(60.0, 10.0, 2.0), Burst(800.0, 10.0, 2.0)),
        faults=(Fault(40.0, "kill", 800.0, f"{ROLE}.0"),),
    )


def busy_learners(seed: int) -> Plan:
    """Two learners that stop by turns, on a store that takes 1 to 300 ms for each message."""
    random, at_s = Random(seed), 5.0
    faults = [Fault(1.0, "store_slow", 120.0, "", 0.3)]
    while at_s < 115.0:
        at_s += random.uniform(0.3, 4.0)
        faults.append(Fault(at_s, "restart", random.uniform(0.05, 1.0), f"learner.{random.randrange(2)}"))
    given = small(seed, 120.0, 3.0, *faults)
    return replace(given, replicas={**given.replicas, "learner": 2})


def halted_joiner() -> Plan:
    """A joiner that stands still for longer than its applications' windows, and for less than its session."""
    given = plan(4, 3.0)
    applications = tuple(replace(each, window_s=5.0, default_loss=1.0) for each in given.applications)
    halts = tuple(Fault(at_s, "halt", 8.0, "joiner.0") for at_s in range(10, 150, 20))
    replicas = {**given.replicas, "joiner": 1}
    settings = replace(plan(1).joiner, predictions=10_000, feedback=10_000)
    return replace(
        given,
        applications=applications,
        faults=halts,
        replicas=replicas,
        joiner=settings,
        faulty=0.0,
        changes=(),
        parked=0.0,
        commit_s=0.5,
    )


def idle_after(fault: Fault) -> Plan:
    """Some traffic, and then nothing for longer than the watchdog waits for records."""
    given = small(1, 32.0, 3.0, fault)
    return replace(given, bursts=(Burst(2.0, 25.0 if fault.kind == "overtaken" else 8.0, 3.0),))


def long_outage() -> Plan:
    """One partition of the answers without a leader for 40 minutes; the other one is fine."""
    return replace(
        small(1, 2_410.0, 1.0, Fault(5.0, "unavailable", 2_400.0, "predictions-0")), bursts=(Burst(2, 8, 2),)
    )


def broken(given: Plan, **instead: Any) -> set[str]:
    """Return the laws that a plan breaks."""
    return {violation.law for violation in simulate(given, **instead).violations}


def test_a_mapping_that_does_not_commit_where_it_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began anew ten minutes before the end, and asked nothing about the orders of before."""
    assert broken(idle_mapping()) == set()
    monkeypatch.setattr("streams.runtime.role.rebalance.UNREAD", None)
    assert broken(idle_mapping()) == {"commits", "mapped"}


def test_a_store_that_takes_an_equal_offset_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt between a new owner's two reads, by a former owner's write, is learnt twice.

    All three guards are out: the write's token, the offset that states are read with, the wait for the write under way
    at a hand-over. Each of them alone keeps the laws on these seeds.
    """

    async def hasten(_keeper: StateQueue, _timeout_s: float) -> None:
        """Wait for nothing."""

    monkeypatch.setattr(StateQueue, "settle", hasten)
    for seed in LEARNT_TWICE:
        assert {"states", "once"} <= broken(busy_learners(seed), store=SharedStore(TrustingStore())), seed
    for seed in STORED_WRONG:
        assert broken(busy_learners(seed), store=SharedStore(TrustingStore())) == {"replayed"}, seed


def test_learners_that_come_and_go_on_a_slow_store_learn_exactly_once() -> None:
    """The same, as it should be."""
    seeds = (*LEARNT_TWICE, *STORED_WRONG)
    assert [broken(busy_learners(seed)) for seed in seeds] == [set()] * len(seeds)


def test_windows_that_end_before_their_feedback_was_read_are_found() -> None:
    """It was written in time, and the default loss is learnt instead."""
    assert "in_time" in broken(halted_joiner(), joiner=HastyJoiner)


def test_a_joiner_that_stood_still_reads_feedback_before_it_ends_windows() -> None:
    """The same, as it should be."""
    assert broken(halted_joiner()) == set()


@pytest.mark.parametrize("fault", IDLE.values(), ids=IDLE.keys())
def test_a_lag_that_counts_what_is_no_record_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog ends a healthy process that has nothing to do."""
    monkeypatch.setattr("load.research.seeds.roles.SimulatedConsumer", CountingConsumer)
    found = simulate(idle_after(fault)).violations
    assert any(law == "ended" and "StuckError" in what for law, what in found)


@pytest.mark.parametrize("fault", IDLE.values(), ids=IDLE.keys())
def test_idle_roles_live_on_where_a_log_ends_with_no_record(fault: Fault) -> None:
    """The same, as it should be."""
    assert broken(idle_after(fault)) == set()


def test_an_exponent_without_a_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand failures of one lane end the role, half an hour into an outage of its partition."""
    monkeypatch.setattr(lanes, "_DOUBLINGS", 10_000)
    found = simulate(long_outage()).violations
    assert any(law == "ended" and "OverflowError" in what for law, what in found)


def test_a_partition_may_be_away_for_longer_than_half_an_hour() -> None:
    """The same, as it should be."""
    assert broken(long_outage()) == set()


def deaf_coordinator() -> Plan:
    """Commits of the joiner that are refused for longer than the learner remembers, until it is killed."""
    refused, kill = Fault(10.0, "commits_refused", 190.0, "joiner"), Fault(190.0, "kill", 1.0, "joiner.0")
    return small(1, 210.0, 3.0, refused, kill)


def test_a_joiner_that_does_not_look_at_what_it_has_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes observations again that the learner has forgotten."""
    monkeypatch.setattr(Joiner, "_on_observations", lambda *_: None)
    assert broken(deaf_coordinator()) == {"once"}


def test_observations_are_learnt_once_however_long_commits_are_refused() -> None:
    """The same, as it should be."""
    assert broken(deaf_coordinator()) == set()


def sourced() -> Plan:
    """A minute of queries for whose candidates, and by whose users, features are looked up."""
    given = plan(5, 1.0)
    assert {source.key for source in given.sources} >= {"candidate", "query_id"}
    return replace(given, faults=(), bursts=(Burst(2.0, 10.0, 5.0),), changes=())


def test_features_that_stand_in_for_others_and_are_not_named_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known is decided by as if it were."""
    give = features._give

    def unnamed(query: Pending, found: features.Recalled) -> None:
        give(query, found._replace(imputed=(), unknown=()))

    monkeypatch.setattr(features, "_give", unnamed)
    assert "features" in broken(sourced())


def test_a_replay_without_what_stores_have_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows any more what a store had."""
    records = TapeInputs.records

    def forgetful(
        self: TapeInputs, runs: Sequence[RecordRun], damaged: Sequence[int] = (), *, are_whole: bool
    ) -> list[Record | Batch]:
        return records(self, [run for run in runs if run.partition != LOOKED_UP], damaged, are_whole=are_whole)

    monkeypatch.setattr(TapeInputs, "records", forgetful)
    assert broken(sourced()) == {"replayed"}


def test_features_are_true_or_named_and_what_decided_is_logged() -> None:
    """The same, as it should be."""
    assert broken(sourced()) == set()


def judged(**changes: Any) -> Plan:
    """A canary that is often silent; an apprentice beside a policy that asks again where a model is slow."""
    given = small(2, 50.0, 15.0)
    canary = Deploy(3.0, "good", shares={"2": 0.4})
    learning = registry.spec(registry.create("thompson"))
    applications = tuple(
        replace(each, apprentice=learning, hedge=1.0, slo_ms=300.0, default_loss=0.25, **changes)
        for each in given.applications
    )
    replicas = {**given.replicas, "worker.good": 2}
    return replace(given, applications=applications, changes=(canary,), slow=0.2, replicas=replicas)


def test_a_silent_version_that_is_not_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its silence is nobody's, and the evidence goes by its answers alone."""
    monkeypatch.setattr(answer, "version_asked", lambda *_: "")
    assert broken(judged()) == {"evidence"}


def test_a_window_that_ends_without_a_word_on_versions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose answers nobody reacts to looks as good as one that is praised."""
    whole = outcomes.JoinOutcomes._unjoined

    def silent(self: outcomes.JoinOutcomes, *given: Any) -> Any:
        self._configuration.has_shares, before = False, self._configuration.has_shares
        try:
            return whole(self, *given)
        finally:
            self._configuration.has_shares = before

    monkeypatch.setattr(outcomes.JoinOutcomes, "_unjoined", silent)
    assert "evidence" in broken(judged())


def test_a_silent_model_that_costs_the_default_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold of wrong losses is right, and a replay makes the same: this law alone looks at what was answered."""
    monkeypatch.setattr(observation, "_silent_loss", lambda _, default_loss: default_loss)
    assert broken(judged()) == {"evidence"}


def test_hedged_queries_that_judge_no_apprentice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the slow ones: without them the slower model looks quicker."""
    monkeypatch.setattr(apprentice, "_depends_on_answers", lambda seen: bool(seen.steps))
    assert broken(judged()) == {"evidence"}


def test_what_versions_and_policies_cost_is_what_was_answered_and_told() -> None:
    """The same, as it should be."""
    assert broken(judged()) == set()


def at_once(*faults: Fault) -> Plan:
    """A minute of volleys to models that answer at once, inside selection that goes by columns."""
    given = small(3, 60.0, 1.0, *faults)
    replicas = {role: count for role, count in given.replicas.items() if not role.startswith("worker.")}
    bursts = (Burst(2.0, 30.0, 2.0, 20),)
    selection = replace(given.selection, cache_bytes=0, admission=False)
    return replace(
        given, bursts=bursts, replicas=replicas, selection=selection, inside=MODELS, is_at_once=True, slow=0.0
    )


def beside_slow() -> Plan:
    """The same, where every other query is for a model that has a worker, which stands still."""
    given = at_once(Fault(4.0, "halt", 20.0, "worker.bad.0"))
    quick, slow = given.applications
    applications = replace(quick, models=("good",)), replace(slow, models=("bad",), slo_ms=1_000.0)
    return replace(given, applications=applications, inside=("good",), replicas={**given.replicas, "worker.bad": 1})


@pytest.fixture
def select(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let every process of selection go by columns; returns the module that does."""
    for share in ("_AT_ONCE", "_COLUMNAR"):
        monkeypatch.setattr(f"load.research.seeds.roles.{share}", 1.0)
    return pytest.importorskip("streams.columns.select", reason="Skysail has been installed without a compiler")


def test_arms_that_are_drawn_by_other_shares_are_found(monkeypatch: pytest.MonkeyPatch, select: Any) -> None:
    """What columns draw is not what the state says."""
    state = select.compiled.State
    monkeypatch.setattr(select.compiled, "State", lambda sums: state((sums[-1] / 2, *sums[1:])))
    assert "replayed" in broken(at_once())


def test_a_completion_of_one_too_many_is_found(monkeypatch: pytest.MonkeyPatch, select: Any) -> None:
    """A batch of answers that says it completes the query behind its last one, which others answer later."""
    monkeypatch.setattr(select, "Span", lambda *its: Span(*its[:3], its[3] + 1))
    assert "commits" in broken(beside_slow())


def test_a_copy_that_is_not_recognised_is_found(monkeypatch: pytest.MonkeyPatch, select: Any) -> None:
    """Nothing that columns have answered is remembered."""
    recent = select.compiled.Recent
    monkeypatch.setattr(select.compiled, "Recent", lambda _ids, *its: recent(IdTimes(), *its))
    assert "answered_once" in broken(at_once())


@pytest.mark.usefixtures("select")
def test_what_columns_answer_at_once_is_what_the_kernels_would() -> None:
    """The same, as it should be, with processes killed between effects; most queries do go by columns."""
    kills = [Fault(at_s, "kill_at", 1.0, "selection.0", amount) for at_s, amount in ((10.0, 1.0), (20.0, 4.0))]
    assert broken(beside_slow()) == broken(at_once(*kills)) == set()
    outcome = simulate(at_once())
    assert outcome.violations == ()
    assert outcome.by_columns > outcome.queries / 2


def elsewhere(*faults: Fault) -> Plan:
    """A minute of volleys to models that have a worker each, whom selection asks over columns."""
    given = at_once(*faults)
    replicas = {**given.replicas, **dict.fromkeys(map(worker_role, MODELS), 1)}
    return replace(given, inside=(), is_at_once=False, replicas=replicas)


@pytest.mark.usefixtures("select")
def test_workers_that_are_asked_over_columns_are_answered_for_whatever_goes_wrong() -> None:
    """Selection is killed, a worker comes back, another one hangs, and answers cannot be written for a while."""
    faults = (
        Fault(10.0, "kill", 1.0, "selection.0"),
        Fault(14.0, "restart", 2.0, "worker.good.0"),
        Fault(20.0, "halt", 5.0, "worker.bad.0"),
        Fault(26.0, "unavailable", 3.0, "predictions-0"),
    )
    for its in ((), faults):
        outcome = simulate(elsewhere(*its))
        assert outcome.violations == ()
        assert outcome.by_columns > outcome.queries / 3


@pytest.mark.usefixtures("select")
def test_a_worker_batch_that_completes_one_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query behind the last one that a worker has answered is not read again after a kill."""
    monkeypatch.setattr("streams.columns.ask.Span", lambda *its: Span(*its[:3], its[3] + 1))
    assert "commits" in broken(elsewhere(Fault(4.0, "halt", 20.0, "worker.bad.0")))
