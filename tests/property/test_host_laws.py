"""Laws of hosts in virtual time: real kernels on the broker-free driver, models that take long, hang, and come late.

Whichever models have a trunk in common: what holds for models alone holds for heads.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Model, ModelPredictions, Outcome
from streams.testing import Crash, Driver, ModelBehaviour
from streams.topology import build, host_role
from tests.loops import CODEC, row, served
from tests.samples import model_query
from workers.kernel.host.kernel import Host
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.kernel.schedule.trunks import ByTrunk
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streams.operators.contract import Load, Predict, Predicted
    from streams.testing import Fault

MS = 1_000
MIB = 1 << 20
ROLE = host_role("small")
NAMES = "abcdef"
PATIENCE_S = 1.0


class Asked(NamedTuple):
    """A query: of which model, and how long after the one before (us)."""

    model: str
    pause_us: int


class Bench:
    """A host of models that take a MiB each, 10 ms to load and 1 ms a batch; those that hang never answer.

    Half of that is the trunk of a model which has one.
    """

    def __init__(
        self,
        schedule: str,
        lanes: int,
        budget: int,
        hanging: Iterable[str] = (),
        faults: Iterable[Fault] = (),
        trunks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.trunks = trunks
        self.batches: list[tuple[str, ...]] = []
        self.resident: list[float] = []
        self.sent_us: dict[str, int] = {}
        self.due_us: dict[str, int] = {}

        def host() -> Host:
            chosen = ByTrunk(SCHEDULES[schedule](Profiles(), lanes))
            memory = Residency(budget * MIB, demand=chosen.demand)
            how = WorkerSettings(1, patience_s=PATIENCE_S)
            return Host(CODEC, "one", how, lambda name: name in NAMES, chosen, memory, lanes)

        services = {name: _service(name in {*hanging}, self.batches) for name in NAMES}
        topology = build(NAMES, 1, dict.fromkeys(NAMES, 1), hosts={"small": NAMES})
        self.driver = Driver(topology, {ROLE: host}, faults, services)
        for name in NAMES:
            self.publish(self.version(name, "1"))
        self.driver.run(0.001)

    def version(self, name: str, version: str, **beside: Any) -> Model:
        """Return a version of a model; all have its trunk."""
        digest, trunk = f"digest {name} {version}", self.trunks.get(name, "")
        form = ("function", "", digest, "label", "float32", (1,))
        shared = {"trunk": trunk, "trunk_bytes": MIB // 2} if trunk else {}
        return Model(name, version, *form, partitions=1, bytes=MIB, **shared, **beside)

    def publish(self, model: Model) -> None:
        """Let a version serve."""
        for key in (topics.model_version(model.name, model.version), model.name):
            self.driver.produce(topics.MODELS, 0, CODEC.encode(model), key.encode())

    def ask(self, asked: Sequence[Asked], slack_us: int) -> None:
        """Ask one query after the other, and look after each how many models are in memory."""
        for name, pause_us in asked:
            query_id = f"{name}{len(self.due_us)}"
            due_us = self.due_us[query_id] = self.driver.now_us + slack_us
            self.sent_us[query_id] = self.driver.now_us
            query = model_query(query_id, 0, due_us, row())
            self.driver.produce(topics.model_queries(name), 0, CODEC.encode(query))
            self.driver.run(pause_us / 1e6)
            self.resident.append(self.figure("host_resident_bytes"))

    def figure(self, name: str) -> float:
        """Return a figure of the host that runs now."""
        host = self.driver.operator(ROLE)
        assert isinstance(host, Host)
        return host.statistics()[name]

    def outcomes(self) -> dict[str, list[tuple[Outcome, int]]]:
        """Return what became of each query, and when."""
        found: dict[str, list[tuple[Outcome, int]]] = {}
        for record in self.driver.read(topics.MODEL_PREDICTIONS):
            batch = CODEC.decode(ModelPredictions, record.value)
            for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True):
                found.setdefault(query_id, []).append((outcome, record.timestamp_us))
        return found


def _service(hangs: bool, batches: list[tuple[str, ...]]) -> ModelBehaviour:
    """Return a model, of which the batches are noted that it has begun: whose parts they have."""
    service = served(lambda _: None if hangs else 1, 900, 100, load=_load)

    def predict(batch: Predict) -> tuple[Predicted, int] | None:
        batches.append((batch.model, *(part.model for part in batch.joined)))
        return service.predict(batch)

    return ModelBehaviour(predict, service.load)


def _load(_load: Load) -> tuple[str | None, int]:
    return None, 10 * MS


TRUNKS = st.sampled_from(
    ({}, {"a": "t", "b": "t", "c": "t"}, dict.fromkeys(NAMES, "t"), {"a": "t", "b": "t", "c": "u", "d": "u"})
)
SCHEDULE = st.sampled_from(sorted(SCHEDULES))
ASKED = st.lists(st.builds(Asked, st.sampled_from(NAMES), st.integers(0, 30 * MS)), min_size=1, max_size=50)


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), st.integers(1, 6), ASKED, st.integers(20 * MS, 500 * MS))
def test_every_query_has_one_outcome_within_the_budget(
    trunks: dict[str, str], schedule: str, lanes: int, budget: int, asked: list[Asked], slack_us: int
) -> None:
    """Whatever is asked when, of however many models fit: nothing waits for ever, and nothing is answered twice."""
    bench = Bench(schedule, lanes, budget, trunks=trunks)
    bench.ask(asked, slack_us)
    bench.driver.run(2)

    assert {query_id: len(found) for query_id, found in bench.outcomes().items()} == dict.fromkeys(bench.due_us, 1)
    assert max(bench.resident) <= budget * MIB
    assert bench.driver.operator(ROLE).needs().held == 0


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), ASKED)
def test_with_time_and_memory_for_all_every_query_is_answered_in_time(
    trunks: dict[str, str], schedule: str, lanes: int, asked: list[Asked]
) -> None:
    """Six loads and fifty batches take 0.11 s: nobody who has a second is refused."""
    bench = Bench(schedule, lanes, len(NAMES), trunks=trunks)
    bench.ask(asked, 1_000 * MS)
    bench.driver.run(2)

    assert {found[0][0] for found in bench.outcomes().values()} == {Outcome.OK}
    assert all(found[0][1] <= bench.due_us[query_id] for query_id, found in bench.outcomes().items())


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), st.permutations(NAMES), st.sampled_from((None, 200 * MS)))
def test_the_first_query_of_each_model_that_fits_is_in_time(
    trunks: dict[str, str], schedule: str, lanes: int, names: list[str], crash_us: int | None
) -> None:
    """At a start, at another one after a crash, and after every version has been replaced: a load takes too long."""
    faults = [Crash(at_us=crash_us, role=ROLE)] if crash_us is not None else []
    bench = Bench(schedule, lanes, len(NAMES), faults=faults, trunks=trunks)
    bench.driver.run(1)
    bench.ask([Asked(name, 2 * MS) for name in names], 9 * MS)
    for name in NAMES:
        bench.publish(bench.version(name, "2"))
    bench.driver.run(3)
    bench.ask([Asked(name, 2 * MS) for name in names], 9 * MS)
    bench.driver.run(1)
    outcomes = bench.outcomes()

    assert {query_id: len(found) for query_id, found in outcomes.items()} == dict.fromkeys(bench.due_us, 1)
    assert {found[0][0] for found in outcomes.values()} == {Outcome.OK}


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), ASKED)
def test_models_that_hang_cost_the_others_time_and_nothing_else(
    trunks: dict[str, str], schedule: str, lanes: int, asked: list[Asked]
) -> None:
    """Each hang holds the lane for its patience; then the model is out, and its neighbours are answered."""
    bench = Bench(schedule, lanes, len(NAMES), hanging="ab", trunks=trunks)
    bench.ask(asked, 20_000 * MS)
    bench.driver.run(60)
    outcomes = bench.outcomes()

    assert {query_id: len(found) for query_id, found in outcomes.items()} == dict.fromkeys(bench.due_us, 1)
    of_good = {found[0][0] for query_id, found in outcomes.items() if query_id[0] not in "ab"}
    of_bad = {found[0][0] for query_id, found in outcomes.items() if query_id[0] in "ab"}
    assert of_good <= {Outcome.OK}
    assert Outcome.OK not in of_bad


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 4), ASKED, st.integers(0, 800 * MS))
def test_a_host_that_crashes_loses_no_query(
    trunks: dict[str, str], schedule: str, budget: int, asked: list[Asked], at_us: int
) -> None:
    """What it held is read again: each query has an outcome, perhaps twice, and the figures begin anew."""
    bench = Bench(schedule, 1, budget, faults=[Crash(at_us=at_us, role=ROLE)], trunks=trunks)
    bench.ask(asked, 300 * MS)
    bench.driver.run(3)

    assert bench.outcomes().keys() == bench.due_us.keys()
    assert max(bench.resident) <= budget * MIB


BESIDE = st.sampled_from(({}, {"shares": {"1": 0.5}}, {"shares": {"1": 0.0}}, {"standby": ("1",)}))


@settings(max_examples=25, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), st.integers(2, 6), ASKED, ASKED, BESIDE)
def test_a_version_that_takes_over_costs_no_query_an_answer(
    trunks: dict[str, str],
    schedule: str,
    lanes: int,
    budget: int,
    before: list[Asked],
    after: list[Asked],
    beside: dict[str, Any],
) -> None:
    """Whether the old one goes, stands by, or has a share; whatever has to make room for the two meanwhile."""
    bench = Bench(schedule, lanes, budget, trunks=trunks)
    bench.ask(before, 3_000 * MS)
    for name in NAMES:
        bench.publish(bench.version(name, "2", **beside))
    bench.ask(after, 3_000 * MS)
    bench.driver.run(2)
    bench.ask([Asked(name, 0) for name in NAMES], 3_000 * MS)
    bench.driver.run(4)
    outcomes = bench.outcomes()

    assert {query_id: len(found) for query_id, found in outcomes.items()} == dict.fromkeys(bench.due_us, 1)
    assert {found[0][0] for found in outcomes.values()} == {Outcome.OK}
    assert max(bench.resident) <= budget * MIB


@settings(max_examples=40, deadline=None)
@given(TRUNKS, SCHEDULE, st.integers(1, 3), ASKED)
def test_only_models_of_one_trunk_are_in_one_batch(
    trunks: dict[str, str], schedule: str, lanes: int, asked: list[Asked]
) -> None:
    """And each of them once; a model without a trunk is alone. What the host counts is what was run."""
    bench = Bench(schedule, lanes, len(NAMES), trunks=trunks)
    bench.ask(asked, 1_000 * MS)
    bench.driver.run(2)
    joint = [batch for batch in bench.batches if len(batch) > 1]

    assert all(len({*batch}) == len(batch) for batch in joint)
    assert all(len({trunks.get(model, model) for model in batch}) == 1 for batch in joint)
    host = bench.driver.operator(ROLE)
    assert isinstance(host, Host)
    assert host.counters["host_joint_batches_total"] == len(joint)
    assert host.counters["host_joint_parts_total"] == sum(map(len, joint))


@settings(max_examples=25, deadline=None)
@given(SCHEDULE, st.integers(2, 6), st.integers(20, 60))
def test_rows_of_all_heads_that_wait_go_through_the_trunk_together(schedule: str, heads: int, rows: int) -> None:
    """With batches of any size, as many are run as if one model were asked about all of the rows."""
    names = NAMES[:heads]
    bench = Bench(schedule, 1, heads, trunks=dict.fromkeys(names, "t"))
    warm = [Asked(names[number % heads], 20 * MS) for number in range(3 * heads)]
    bench.ask(warm, 1_000 * MS)
    before = len(bench.batches)
    bench.ask([Asked(names[number % heads], 0) for number in range(rows)], 1_000 * MS)
    bench.driver.run(2)
    together = bench.batches[before:]

    alone = Bench(schedule, 1, heads)
    alone.ask([Asked(names[0], 20 * MS)] * (3 * heads), 1_000 * MS)
    before = len(alone.batches)
    alone.ask([Asked(names[0], 0)] * rows, 1_000 * MS)
    alone.driver.run(2)
    parts = sum(len(batch) - 1 for batch in together)
    assert len(together) - parts <= len(alone.batches[before:]) + heads


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 40), st.booleans()), max_size=60), TRUNKS)
def test_a_trunk_takes_its_room_once(steps: list[tuple[str, int, bool]], trunks: dict[str, str]) -> None:
    """Memory is the heads that are there and the trunks that they have, and never more than the budget."""
    residency, loading = Residency(100, loading=2), list[str]()
    wished, there = dict[str, int](), dict[str, int]()
    for now_us, (unit, head_bytes, ends) in enumerate(steps):
        trunk_bytes = 30 if unit in trunks else 0
        if unit not in there:
            wished.setdefault(unit, head_bytes)
            residency.want(unit, head_bytes + trunk_bytes, trunks.get(unit, ""), trunk_bytes)
        for change in residency.changes(now_us):
            for eviction in change.evictions:
                del there[eviction.unit]
            loading.append(change.load)
            there[change.load] = wished.pop(change.load)
        if loading and ends:
            residency.loaded(loading.pop(0), 0, now_us)
        shared = {trunks[name] for name in there if name in trunks}
        assert residency.used_bytes == sum(there.values()) + 30 * len(shared) <= 100
