"""A host in virtual time: one lane, a budget of memory, a model that hangs, models that come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Tensor
from streams.operators.contract import Emit, Load, Loaded, Predict, Predicted, Ran, Record, Unload
from streams.operators.statistics import as_label
from tests.samples import model_query
from workers.kernel.host.kernel import Host
from workers.kernel.model.worker import ModelWorker
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.operators.contract import Effects

CODEC = Codec()
MIB = 1 << 20
SECOND = 1_000_000
PATIENCE_US = 5 * SECOND


class Bench:
    """A host and the process of its models, in virtual time: a load takes 10 ms or as is said, a batch 1 ms."""

    def __init__(self, budget: int = 2, hangs: Iterable[str] = (), schedule: str = "fifo") -> None:
        self.hangs = {*hangs}
        self.is_blamed = True  # a model that hangs; otherwise its batch was lost through another one
        self.broken: set[str] = set()  # models that cannot be loaded
        self.unloaded_at_work: list[str] = []
        self.batch_us = 1_000
        self.load_us: dict[str, int] = {}
        self.batches: list[ModelPredictions] = []
        self.sizes: dict[str, int] = {}  # that models take, where it is not a MiB
        self.now_us = 1_000 * SECOND
        self.outcomes: dict[str, list[Outcome]] = {}
        self.in_memory: set[tuple[str, int]] = set()
        self.most = self.most_running = self._running = 0
        self.loads: list[str] = []
        self._later: list[tuple[int, int, Load | Predict]] = []
        self._order = self._offset = 0
        chosen = SCHEDULES[schedule](Profiles())
        residency = Residency(budget * MIB, demand=chosen.demand)
        self.host = Host(CODEC, "one", WorkerSettings(), lambda name: name != "stranger", chosen, residency)

    def add(self, *names: str, version: str = "1", standby: tuple[str, ...] = ()) -> None:
        """Publish models of a MiB each."""
        for name in names:
            model = Model(name, version, "function", "", version, "label", "float32", (2,), partitions=1, bytes=MIB)
            model = replace(model, standby=standby)
            for key in (topics.model_version(name, version), name):
                self._give(topics.MODELS, key.encode(), CODEC.encode(model))

    def remove(self, name: str) -> None:
        """Remove a model."""
        self._give(topics.MODELS, name.encode(), None)

    def ask(self, name: str, number: int, slack_us: int = SECOND) -> str:
        """Ask a model; returns the query's id."""
        query_id = f"{name}-{number}"
        row = Tensor.of(np.zeros(2, np.float32))
        query = model_query(query_id, 0, self.now_us + slack_us, row)
        self._give(topics.model_queries(name), None, CODEC.encode(query))
        return query_id

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_us = self.now_us + int(seconds * 1e6)
        while True:
            due_us = self.host.needs().deadline_us
            next_us = min([each[0] for each in self._later] + ([] if due_us is None else [due_us]), default=end_us + 1)
            if next_us > end_us:
                break
            self.now_us = max(self.now_us, next_us)
            if self._later and self._later[0][0] <= self.now_us:
                _, _, effect = self._later.pop(0)
                self._tell(effect)
            else:
                self._perform(self.host.on_timer(self.now_us))
        self.now_us = end_us

    def _give(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self._offset += 1
        record = Record(topic, 0, self._offset, self.now_us, key, value)
        self._perform(self.host.on_records([record], self.now_us))

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Emit) and effect.topic == topics.MODEL_PREDICTIONS:
                batch = CODEC.decode(ModelPredictions, effect.value)
                self.batches.append(batch)
                for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True):
                    self.outcomes.setdefault(query_id, []).append(outcome)
            elif isinstance(effect, Load):
                self.loads.append(effect.model.name)
                self.in_memory.add((effect.model.name, effect.copy))
                self.most = max(self.most, len(self.in_memory))
                self._put(self.load_us.get(effect.model.name, 10_000), effect)
            elif isinstance(effect, Unload):
                at_work = [each for _, _, each in self._later if isinstance(each, Predict)]
                if (effect.model, effect.copy) in [(each.model, each.copy) for each in at_work]:
                    self.unloaded_at_work.append(effect.model)
                self.in_memory.discard((effect.model, effect.copy))
            elif isinstance(effect, Predict):
                assert (effect.model, effect.copy) in self.in_memory
                self._running += 1
                self.most_running = max(self.most_running, self._running)
                self._put(PATIENCE_US if effect.model in self.hangs else self.batch_us, effect)

    def _put(self, after_us: int, effect: Load | Predict) -> None:
        self._order += 1
        self._later.append((self.now_us + after_us, self._order, effect))
        self._later.sort()

    def _tell(self, effect: Load | Predict) -> None:
        if isinstance(effect, Load):
            name = effect.model.name
            size_bytes, took_us = self.sizes.get(name, MIB), self.load_us.get(name, 10_000)
            fault = "a file is gone" if name in self.broken else None
            self._perform(self.host.on_loaded(Loaded.of(effect, fault, took_us, size_bytes), self.now_us))
            return
        self._running -= 1
        rows = len(effect.rows)
        if effect.model in self.hangs:
            lost = [load for _, _, load in self._later if isinstance(load, Load)]
            self._later.clear()
            self.in_memory.clear()
            failed = Predicted.failed(rows, "it hangs")
            if not self.is_blamed:
                failed = Predicted(failed.outcomes, failed.answers)
            self._perform(self.host.on_predicted(effect.batch_id, Ran(failed, PATIENCE_US, is_lost=True), self.now_us))
            for load in lost:
                self._perform(self.host.on_loaded(Loaded.of(load, is_lost=True), self.now_us))
            return
        answers = Predicted((Outcome.OK,) * rows, np.zeros(rows, np.int64))
        self._perform(self.host.on_predicted(effect.batch_id, Ran(answers, self.batch_us), self.now_us))


def test_models_are_loaded_when_they_are_asked_and_no_sooner() -> None:
    """Of three that are known one is asked, and loaded."""
    bench = Bench()
    bench.add("a", "b", "c")
    bench.run(1)
    assert bench.loads == []
    query = bench.ask("b", 1)
    bench.run(1)
    assert bench.loads == ["b"]
    assert bench.outcomes[query] == [Outcome.OK]


def test_the_one_that_was_not_asked_for_longest_makes_room() -> None:
    """Two fit: the third replaces the first, which is loaded again when it is asked."""
    bench = Bench(budget=2)
    bench.add("a", "b", "c")
    for number, name in enumerate(("a", "b", "c", "a")):
        bench.ask(name, number)
        bench.run(1)
    assert bench.loads == ["a", "b", "c", "a"]
    assert bench.most == 2
    assert bench.host.last_eviction is not None
    assert (bench.host.last_eviction.unit, bench.host.last_eviction.needed_by) == ("b", "a")


def test_a_model_that_hangs_is_taken_out_and_the_others_go_on() -> None:
    """Its rows fail at once while it is out; what was in memory beside it is loaded again without being asked."""
    bench = Bench(budget=3, hangs=("bad",))
    bench.add("good", "bad")
    bench.ask("good", 1)
    bench.run(1)
    hung = bench.ask("bad", 1, slack_us=20 * SECOND)
    bench.run(6)
    assert bench.outcomes[hung] == [Outcome.FAILED]
    assert bench.loads == ["good", "bad", "good"]
    out, beside = bench.ask("bad", 2), bench.ask("good", 2)
    bench.run(0.1)
    assert bench.outcomes[out] == [Outcome.FAILED]
    assert bench.outcomes[beside] == [Outcome.OK]
    bench.hangs.clear()
    bench.run(10)
    again = bench.ask("bad", 3)
    bench.run(1)
    assert bench.outcomes[again] == [Outcome.OK]


def test_its_figures_say_what_is_in_memory_and_why_something_is_not() -> None:
    """The model that was unloaded last is named, with the one that it made room for."""
    bench = Bench(budget=1)
    bench.add("a", "b", "c")
    for number, name in enumerate(("a", "b")):
        bench.ask(name, number)
        bench.run(1)
    figures = bench.host.statistics()
    assert (figures["host_known_models"], figures["host_resident_models"]) == (3.0, 1.0)
    assert figures["resident{model=b,version=1}"] == 1.0
    assert figures["host_evictions_total"] == 1.0
    assert "host_last_eviction_idle_s{model=a,needed_by=b}" in figures


def test_its_figures_say_how_well_batches_were_predicted() -> None:
    """The second batch took as long as the first, by which it was predicted; the third took 2 ms more."""
    bench = Bench()
    bench.add("a")
    for number, batch_us in enumerate((1_000, 1_000, 3_000)):
        bench.batch_us = batch_us
        bench.ask("a", number)
        bench.run(1)
    figures = bench.host.statistics()
    assert figures["host_predicted_batches_total"] == 2.0
    assert figures["host_predicted_too_short_total"] == 1.0
    assert figures["host_predicted_too_short_p99_us"] == 2_000.0
    assert figures["host_predicted_too_long_total"] == 0.0


def test_its_figures_say_what_batches_of_each_model_and_size_take() -> None:
    """The longest of the last ten, beside what two batches were predicted to take, and took."""
    bench = Bench()
    bench.add("a", "b")
    for number, batch_us in enumerate((1_000, 1_000, 3_000)):
        bench.batch_us = batch_us
        bench.ask("a", number)
        bench.run(1)
    figures = bench.host.statistics()
    assert figures["host_batch_p99_us{model=a,rows=1}"] == 3_000.0
    assert figures["host_load_p99_us{model=a}"] == 10_000.0
    assert figures["host_model_predicted_batches_total{model=a}"] == 2.0
    assert figures["host_model_predicted_us_total{model=a}"] == 2_000.0
    assert figures["host_model_predicted_actual_us_total{model=a}"] == 4_000.0
    assert figures["host_model_predicted_too_short_total{model=a}"] == 1.0
    assert not [name for name in figures if "model=b" in name]


def test_a_batch_says_by_when_it_had_to_start() -> None:
    """A model whose last batch took 1 ms had to start so long before its row is due."""
    bench = Bench(schedule="clockwork")
    bench.add("a")
    bench.ask("a", 1)
    bench.run(1)
    due_us = bench.now_us + SECOND
    bench.ask("a", 2)
    bench.run(1)
    assert (bench.batches[-1].earliest_us, bench.batches[-1].latest_us) == (due_us - SECOND, due_us - 1_000)


def test_a_model_whose_loading_hangs_keeps_the_others_out_for_5_s_only() -> None:
    """Afterwards they are loaded beside it, and when it is there after all it answers, too."""
    bench = Bench(budget=4)
    bench.load_us["stuck"] = 100 * SECOND
    bench.add("stuck", "a", "b")
    late = bench.ask("stuck", 1, slack_us=200 * SECOND)
    kept_out = bench.ask("a", 1)
    bench.run(5.1)
    assert bench.outcomes[kept_out] == [Outcome.EXPIRED]
    asked = [bench.ask("a", 2), bench.ask("b", 2)]
    bench.run(1)
    assert [bench.outcomes[query] for query in asked] == [[Outcome.OK]] * 2
    assert bench.host.statistics()["host_slow_loads_total"] == 1.0
    bench.run(100)
    assert bench.outcomes[late] == [Outcome.OK]


def test_a_model_that_usually_takes_long_to_load_keeps_the_others_out_for_longer() -> None:
    """Ten times as long as it took: one load at a time is what memory is reckoned by."""
    bench = Bench(budget=1)
    bench.load_us["large"] = 2 * SECOND
    bench.add("large", "a")
    for number, name in enumerate(("large", "a")):
        bench.ask(name, number, slack_us=10 * SECOND)
        bench.run(3)
    bench.load_us["large"] = 15 * SECOND
    bench.ask("large", 3, slack_us=60 * SECOND)
    bench.run(16)
    assert "host_slow_loads_total" not in bench.host.statistics()


def test_loading_a_removed_model_is_not_loading_a_new_one_of_its_name() -> None:
    """The first load ends 1 s after the second has begun, which takes 5 s."""
    bench = Bench()
    bench.load_us["a"] = 2 * SECOND
    bench.add("a")
    bench.ask("a", 1, slack_us=20 * SECOND)
    bench.run(1)
    bench.remove("a")
    bench.load_us["a"] = 5 * SECOND
    bench.add("a")
    query = bench.ask("a", 2, slack_us=20 * SECOND)
    bench.run(3)
    assert query not in bench.outcomes
    bench.run(3)
    assert bench.outcomes[query] == [Outcome.OK]


def test_a_batch_that_cannot_begin_does_not_keep_its_model_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel fails, and starts over; the next query is answered, and the one before."""

    def fail(*_: object) -> Effects:
        raise ValueError("a bug")

    for schedule in SCHEDULES:
        bench = Bench(schedule=schedule)
        bench.add("a")
        bench.ask("a", 1)
        bench.run(1)
        with monkeypatch.context() as broken:
            broken.setattr(ModelWorker, "start", fail)
            with pytest.raises(ValueError, match="a bug"):
                bench.ask("a", 2)
        query = bench.ask("a", 3)
        bench.run(1)
        assert bench.outcomes[query] == [Outcome.OK]
        assert bench.outcomes["a-2"] == [Outcome.OK]


def test_a_model_whose_rows_wait_makes_room_after_those_that_nobody_asks() -> None:
    """Under `fifo`, too: the least recently used one would have to be loaded again at once."""
    bench = Bench(budget=3)
    bench.add("a", "b", "c", "d")
    for name in "abc":
        bench.ask(name, 1)
        bench.run(1)
    bench.batch_us = SECOND
    bench.ask("c", 2, slack_us=10 * SECOND)  # runs, while the others wait
    waits = bench.ask("a", 2, slack_us=10 * SECOND)
    bench.ask("d", 2, slack_us=10 * SECOND)
    bench.run(5)
    assert bench.host.last_eviction is not None
    assert bench.host.last_eviction.unit == "b"
    assert bench.loads.count("a") == 1
    assert bench.outcomes[waits] == [Outcome.OK]


def test_topics_follow_the_models() -> None:
    """A new model's topic is read, a removed one's is not, a stranger's never."""
    bench = Bench()
    bench.add("a", "b", "stranger")
    bench.ask("a", 1)
    bench.remove("a")
    assert bench.host.needs().group.topics == {topics.model_queries("b")}


def test_a_model_larger_than_the_budget_fails_with_the_reason() -> None:
    """It is not loaded at all."""
    bench = Bench(budget=0)
    bench.add("a")
    query = bench.ask("a", 1)
    bench.run(1)
    assert bench.outcomes[query] == [Outcome.FAILED]
    assert bench.loads == []


def test_a_model_larger_than_the_budget_is_refused_once() -> None:
    """However often it is asked; its worker tries it no more, and says so."""
    bench = Bench(budget=0)
    bench.add("a")
    for number in range(100):
        bench.ask("a", number)
        bench.run(10)
    assert {outcome for found in bench.outcomes.values() for outcome in found} == {Outcome.FAILED}
    figures = bench.host.statistics()
    assert figures["version_given_up{model=a,version=1}"] == 1.0
    told = as_label("it takes 1.0 MiB, and its host has 0 for all models (hosts.<pool>.memory_mib)")
    assert figures[f"version_fault{{model=a,version=1,reason={told}}}"] == 1.0


def test_a_model_that_turns_out_larger_than_the_budget_is_loaded_again_seldom() -> None:
    """At once its neighbour is in memory again; it is tried after 10, 40 and 160 s, as it may be smaller then."""
    bench = Bench(budget=2)
    bench.sizes["a"] = 3 * MIB
    bench.add("a", "b")
    for number in range(230):
        bench.ask("a", number)
        bench.ask("b", number)
        bench.run(1)
    assert bench.loads.count("a") == 4
    assert bench.loads.count("b") <= 2
    assert {found[0] for query, found in bench.outcomes.items() if query.startswith("b")} == {Outcome.OK}
    bench.sizes.clear()
    bench.run(640)
    bench.ask("a", 1_000)
    bench.run(1)
    assert bench.outcomes["a-1000"] == [Outcome.OK]


def test_another_version_does_not_wait_until_the_one_that_is_taken_out_is_tried_again() -> None:
    """The first one is out for 40 s; the second takes over as soon as it is there."""
    bench = Bench(budget=2)
    bench.sizes["a"] = 3 * MIB
    bench.add("a")
    bench.ask("a", 1)
    bench.run(12)
    assert bench.loads == ["a", "a"]
    bench.sizes.clear()
    bench.add("a", version="2")
    bench.run(2)
    query = bench.ask("a", 2)
    bench.run(1)
    assert bench.outcomes[query] == [Outcome.OK]


def test_a_model_that_ends_the_process_again_and_again_is_out_longer_each_time() -> None:
    """That it answers in between does not help it: each end costs its neighbours their memory."""
    bench = Bench(budget=3)
    bench.add("good", "bad")
    out_s = []
    for number in range(3):
        bench.hangs = {"bad"}
        bench.ask("bad", number, slack_us=20 * SECOND)
        bench.run(6)
        bench.hangs.clear()
        began_us = bench.now_us
        is_back = False
        while not is_back:
            query = bench.ask("bad", bench.now_us)
            bench.run(1)
            is_back = bench.outcomes[query] == [Outcome.OK]
        out_s.append(round((bench.now_us - began_us) / SECOND, -1))
    assert out_s == [10, 40, 160]


def test_a_model_that_is_removed_while_its_batch_runs_holds_nothing_afterwards() -> None:
    """Its batch is lost through another model, and is not asked again; a new model of its name answers."""
    bench = Bench(hangs=("a",))
    bench.is_blamed = False
    bench.add("a")
    gone = bench.ask("a", 1, slack_us=20 * SECOND)
    bench.run(0.5)
    bench.remove("a")
    bench.run(6)
    assert bench.host.needs().held == 0
    assert gone not in bench.outcomes
    bench.hangs.clear()
    bench.add("a", version="2")
    again = bench.ask("a", 2)
    bench.run(1)
    assert bench.outcomes[again] == [Outcome.OK]
    assert bench.host.needs().held == 0


def test_versions_of_a_model_that_was_removed_do_not_come_back_with_a_new_one_of_its_name() -> None:
    """Although the new one would have one of them stand by."""
    bench = Bench()
    bench.add("a")
    bench.ask("a", 1)
    bench.run(1)
    bench.remove("a")
    bench.add("a", version="2", standby=("1",))
    again = bench.ask("a", 2)
    bench.run(10)
    assert bench.outcomes[again] == [Outcome.OK]
    assert bench.loads == ["a", "a"]


def test_a_model_that_cannot_be_loaded_again_is_tried_again_seldom() -> None:
    """Its rows fail meanwhile."""
    bench = Bench(budget=1)
    bench.add("a", "b")
    for name in "ab":
        bench.ask(name, 1)
        bench.run(1)
    bench.broken.add("a")
    failed = bench.ask("a", 2)
    bench.run(9)
    assert bench.outcomes[failed] == [Outcome.FAILED]
    assert bench.loads == ["a", "b", "a"]
    bench.broken.clear()
    bench.run(2)
    again = bench.ask("a", 3)
    bench.run(1)
    assert bench.outcomes[again] == [Outcome.OK]


def test_a_version_that_takes_over_while_rows_wait_stays_in_memory_while_it_runs() -> None:
    """It has the model's name from when it is idle on. Two other models need room at some time of the change."""
    answering = set[str]()
    for moment in range(1, 40):
        bench = Bench(budget=2)
        bench.batch_us = 100_000
        bench.add("m", "x", "y")
        bench.ask("m", 0)
        bench.run(1)
        bench.add("m", version="2", standby=("1",))
        for number in range(1, 40):
            bench.ask("m", number)
            if number == moment:
                bench.ask("x", number)
                bench.ask("y", number)
            bench.run(0.03)
        answering |= {batch.version for batch in bench.batches if batch.model == "m"}
        assert bench.unloaded_at_work == []
    assert answering == {"1", "2"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 40_000)), max_size=60), st.integers(1, 4))
def test_every_query_has_one_outcome_within_one_lane_and_the_budget(asked: list[tuple[str, int]], budget: int) -> None:
    """Whatever is asked when, of models one of which hangs."""
    bench = Bench(budget=budget, hangs=("e",))
    bench.add(*"abcde")
    queries = []
    for number, (name, pause_us) in enumerate(asked):
        queries.append(bench.ask(name, number, slack_us=100_000))
        bench.run(pause_us / 1e6)
    bench.run(60)
    assert {query: len(found) for query, found in bench.outcomes.items()} == dict.fromkeys(queries, 1)
    assert bench.most_running <= 1
    assert bench.most <= budget
    assert bench.host.needs().held == 0
