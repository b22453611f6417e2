"""Laws of real workers in virtual time: their models take as long as they are said to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import draw
from schemas import topics
from schemas.records import ModelPredictions, Outcome
from streams.testing import Crash, Driver
from streams.topology import build
from tests.loops import CODEC, row, served, version
from tests.samples import model_query
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Model
    from streams.testing import Fault, ModelBehaviour

MS = 1_000
TOPIC = topics.model_queries("m")


class Bench:
    """One worker of model `m`, and queries for it."""

    def __init__(self, service: ModelBehaviour, faults: Iterable[Fault] = (), **given: Any) -> None:
        how = WorkerSettings(1, **given)
        topology = build(["m"], 1, {"m": 1})
        make = {"worker.m": lambda: ModelWorker(CODEC, version("m"), "w", how)}
        self.driver = Driver(topology, make, faults, {"m": service})
        self.due_us: dict[str, int] = {}
        self.driver.run(0.001)

    def ask(self, count: int, slack_us: int) -> list[str]:
        """Ask so many rows in one record; returns their queries' ids."""
        asked = [f"q{len(self.due_us) + number}" for number in range(count)]
        for query_id in asked:
            due_us = self.due_us[query_id] = self.driver.now_us + slack_us
            self.driver.produce(TOPIC, 0, CODEC.encode(model_query(query_id, 0, due_us, row())))
        return asked

    def load(self, seconds: float, rate: int, slack_us: int, step_s: float = 0.01) -> list[str]:
        """Ask so many rows a second for a while."""
        asked = []
        for _ in range(round(seconds / step_s)):
            asked += self.ask(round(rate * step_s), slack_us)
            self.driver.run(step_s)
        return asked

    def want(self, serving: Model, *others: Model) -> None:
        """Say which version is to serve; what runs beside it must be known."""
        for model in (*others, serving):
            self.driver.produce(topics.MODELS, 0, CODEC.encode(model), f"m@{model.version}".encode())
        self.driver.produce(topics.MODELS, 0, CODEC.encode(serving), b"m")

    def batches(self) -> list[tuple[int, ModelPredictions]]:
        """Return what was answered, and when."""
        records = self.driver.read(topics.MODEL_PREDICTIONS)
        return [(record.timestamp_us, CODEC.decode(ModelPredictions, record.value)) for record in records]

    def outcomes(self) -> dict[str, tuple[Outcome, str, int]]:
        """Return of each query its outcome, version and when it was answered; none is answered twice, or not at all."""
        rows = [
            (query_id, (outcome, batch.version, at_us))
            for at_us, batch in self.batches()
            for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True)
        ]
        found = dict(rows)
        missing, twice = self.due_us.keys() - found.keys(), len(rows) - len(found)
        assert (len(missing), twice) == (0, 0)
        return found


CALL_US, ROW_US = st.integers(100, 5 * MS), st.integers(400, 1 * MS)


@settings(max_examples=8, deadline=None)
@given(CALL_US, ROW_US, st.integers(10 * MS, 40 * MS))
def test_the_batch_size_settles_where_a_batch_takes_its_objective(call_us: int, row_us: int, objective_us: int) -> None:
    """Never far above it, and no more than a seventh below."""
    bench = Bench(served(lambda _: 1, call_us, row_us), objective_us=objective_us, queue_rows=60_000)
    fits = (objective_us - call_us) // row_us
    bench.ask(150 * fits, 10_000 * MS)
    bench.driver.run(12)
    full = [batch.batch_rows for _, batch in bench.batches() if batch.batch_rows == batch.batch_cap][-20:]

    assert max(full) <= fits + 2
    assert min(full) >= (6 * fits) // 7 - 2


@settings(max_examples=6, deadline=None)
@given(st.integers(500, 10 * MS), st.integers(1 * MS, 4 * MS), st.floats(1.2, 3.0))
def test_an_overloaded_worker_goes_on_at_its_full_rate_and_tells_the_others_at_once(
    call_us: int, row_us: int, overload: float
) -> None:
    """Nine of ten answers are in time, as a few that are late correct estimates; nobody waits for much longer."""
    slack_us = 100 * MS
    bench = Bench(served(lambda _: 1, call_us, row_us))
    fits = (slack_us // 2 - call_us) // row_us
    capacity = fits / (slack_us / 2 / 1e6)
    bench.load(1.5, round(overload * capacity), slack_us, 0.02)
    early = len(bench.due_us)
    bench.load(1.5, round(overload * capacity), slack_us, 0.02)
    bench.driver.run(1)
    outcomes = {name: found for name, found in bench.outcomes().items() if int(name[1:]) >= early}
    answered = {name: at_us for name, (outcome, _, at_us) in outcomes.items() if outcome is Outcome.OK}
    expired = {name: at_us for name, (outcome, _, at_us) in outcomes.items() if outcome is Outcome.EXPIRED}

    assert len(answered) + len(expired) == len(outcomes)
    assert len(answered) > 0.75 * capacity * 1.5
    late = [name for name, at_us in answered.items() if at_us > bench.due_us[name]]
    assert len(late) <= 0.1 * len(answered)
    assert all(at_us <= bench.due_us[name] + slack_us for name, at_us in expired.items())


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 0.6), st.floats(0.01, 0.3))
def test_each_canary_answers_exactly_the_queries_that_are_drawn_for_it(first: float, second: float) -> None:
    """Which those are follows from their ids, on every replica and at every time."""
    shares = {"2": first, "3": second}
    bench = Bench(served(lambda _: 1))
    bench.want(version("m", shares=shares), version("m", "2"), version("m", "3"))
    bench.load(0.6, 200, 500 * MS)
    drawn = bench.load(1.0, 500, 500 * MS)
    bench.driver.run(1)
    outcomes = bench.outcomes()

    assert {name: outcomes[name][1] for name in drawn} == {name: draw.version(name, shares) or "1" for name in drawn}


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 60), st.sampled_from([1.0, 0.0, 0.5]))
def test_a_batch_that_hangs_costs_no_query_its_outcome(hangs: int, share: float) -> None:
    """A hung version that serves ends its role, which is started again; one beside it is left, and its rows fail."""
    batches = Counter[str]()

    def answer(version_asked: str) -> int | None:
        batches[version_asked] += 1
        return None if batches[version_asked] == hangs + 1 and version_asked == hung else 1

    hung = "2" if share < 1.0 else "1"
    service = served(lambda _: 1)
    given = service.predict
    bench = Bench(type(service)(lambda batch: given(batch) if answer(batch.version) else None))
    if share < 1.0:
        bench.want(version("m", shares={"2": share}), version("m", "2"))
    bench.load(2.0, 200, 500 * MS)
    bench.driver.run(30)
    told = {query_id for _, batch in bench.batches() for query_id in batch.query_ids}

    assert told == bench.due_us.keys()
    assert bench.driver.committed("worker.m", TOPIC, 0) == len(bench.due_us)
    assert bench.ask(1, 500 * MS)
    bench.driver.run(1)
    _, last = bench.batches()[-1]
    assert (last.outcomes, last.version) == ((Outcome.OK,), "1")


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.integers(0, 2_000 * MS),
    st.booleans(),
    st.floats(0.2, 1.0),
)
def test_a_version_that_takes_over_under_load_costs_no_query_its_time(
    wanted: list[int], load_us: int, blocks: bool, utilization: float
) -> None:
    """However long loading takes and whatever is wanted in between; the last one that is wanted answers in the end."""
    bench = Bench(
        served(lambda _: 1, 500, 300, load=lambda _: (None, load_us), is_blocking=blocks), objective_us=10 * MS
    )
    bench.driver.run(3)
    asked = []
    for number in wanted:
        bench.want(version("m", str(number + 1)))
        asked += bench.load(0.7, round(utilization * 2_000), 100 * MS)
    bench.driver.run(15)
    asked += bench.load(0.5, 500, 100 * MS)
    bench.driver.run(1)
    outcomes = bench.outcomes()

    assert {outcomes[name][0] for name in asked} == {Outcome.OK}
    assert all(outcomes[name][2] <= bench.due_us[name] for name in asked)
    assert outcomes[asked[-1]][1] == str(wanted[-1] + 1)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2_000 * MS), max_size=3), st.booleans())
def test_a_worker_that_dies_loses_nothing(deaths: list[int], blocks: bool) -> None:
    """What it had not answered is read again; each query has its outcome, and everything is committed."""
    faults = [Crash(at_us, "worker.m") for at_us in deaths]
    bench = Bench(served(lambda _: 1, 5 * MS, 500, is_blocking=blocks), faults)
    bench.load(2.0, 500, 1_000 * MS)
    bench.driver.run(3)
    told = {query_id for _, batch in bench.batches() for query_id in batch.query_ids}

    assert told == bench.due_us.keys()
    assert bench.driver.committed("worker.m", TOPIC, 0) == len(bench.due_us)
