"""What a host loads before anybody asks, in virtual time: all that fits, most asked first, and no model's place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Place, Plan, Profile
from streams.operators.contract import Emit, Load, Loaded, Phase, Predict, Predicted, Ran, Record, Unload
from tests.loops import row
from tests.samples import model_query
from workers.kernel.host.kernel import Host
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from streams.operators.contract import Effects

CODEC = Codec()
MIB = 1 << 20
MS, SECOND = 1_000, 1_000_000
LOAD_US = 100 * MS


class _Later(NamedTuple):
    at_us: int
    number: int
    effect: Load | Predict


class Bench:
    """A host and the process of its models, in virtual time: a load takes 100 ms or as is said, a batch 1 ms."""

    def __init__(self, budget: int = 3, schedule: str = "fifo") -> None:
        self.now_us = 1_000 * SECOND
        self.sizes: dict[str, int] = {}  # that models take, where it is not a MiB
        self.load_us: dict[str, int] = {}
        self.broken: set[str] = set()
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.outcomes: dict[str, Outcome] = {}
        self.copies: set[tuple[str, int]] = set()
        self._later: list[_Later] = []
        self._offset = 0
        chosen = SCHEDULES[schedule](Profiles())
        residency = Residency(budget * MIB, demand=chosen.demand)
        self.host = Host(CODEC, "one", WorkerSettings(), lambda _: True, chosen, residency, pool="small")

    def start(self) -> None:
        """Let all have been given that lay in the topics."""
        self._perform(self.host.on_phase(Phase.CAUGHT_UP, self.now_us))

    def add(self, *names: str, version: str = "1", shares: dict[str, float] | None = None) -> None:
        """Publish models, which say that they take what they take."""
        for name in names:
            size_bytes = self.sizes.get(name, MIB)
            model = Model(name, version, "function", "", version, "label", "float32", (1,), bytes=size_bytes)
            self._give(topics.MODELS, topics.model_version(name, version).encode(), CODEC.encode(model))
            serves = replace(model, version="1", digest="1", shares=shares) if shares else model
            self._give(topics.MODELS, name.encode(), CODEC.encode(serves))

    def remove(self, name: str) -> None:
        """Remove a model."""
        self._give(topics.MODELS, name.encode(), None)

    def profile(self, name: str, at_us: int, sizes: tuple[int, ...] = (1,)) -> None:
        """Publish what batches of a model take, at a time."""
        profile = Profile(name, "1", sizes, tuple(1_000 for _ in sizes), LOAD_US, MIB)
        self._give(topics.PROFILES, name.encode(), CODEC.encode(profile), at_us)

    def plan(self, *places: tuple[str, str, float]) -> None:
        """Publish a plan: host, model, rows a second."""
        found = tuple(Place(host, model, (0,), per_s, 1, 1) for host, model, per_s in places)
        plan = Plan("small", 1, 1, 1, tuple({host for host, _, _ in places}), found, "a test")
        self._give(topics.PLAN, b"small", CODEC.encode(plan))

    def ask(self, name: str, slack_us: int = SECOND) -> str:
        """Ask a model; returns the query's id."""
        query_id = f"{name}-{self._offset}"
        query = model_query(query_id, 0, self.now_us + slack_us, row())
        self._give(topics.model_queries(name), None, CODEC.encode(query))
        return query_id

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_us = self.now_us + int(seconds * 1e6)
        while True:
            due_us = self.host.needs().deadline_us
            next_us = min(
                [each.at_us for each in self._later] + ([] if due_us is None else [due_us]), default=end_us + 1
            )
            if next_us > end_us:
                break
            self.now_us = max(self.now_us, next_us)
            if self._later and self._later[0].at_us <= self.now_us:
                self._tell(self._later.pop(0).effect)
            else:
                self._perform(self.host.on_timer(self.now_us))
        self.now_us = end_us

    def end_process(self) -> None:
        """Let the process of the models end while it answers nothing."""
        lost = [each.effect for each in self._later if isinstance(each.effect, Load)]
        self._later = [each for each in self._later if isinstance(each.effect, Predict)]
        for load in lost:
            name, version, copy = load.model.name, load.model.version, load.copy
            self._perform(self.host.on_loaded(Loaded(name, version, copy, is_lost=True), self.now_us))
        if lost:
            return
        name, version = next(iter(self.resident))
        copy = next(each for each in self.copies if each[0] == name)[1]
        self._perform(self.host.on_loaded(Loaded(name, version, copy, is_lost=True), self.now_us))

    @property
    def resident(self) -> set[tuple[str, str]]:
        """The versions in memory, as reports say."""
        shown = [name for name in self.host.statistics() if name.startswith("resident{")]
        return {(name.split("model=")[1].split(",")[0], name.split("version=")[1][:-1]) for name in shown}

    def names(self) -> set[str]:
        """Return the models in memory."""
        return {name for name, _ in self.resident}

    def _give(self, topic: str, key: bytes | None, value: bytes | None, at_us: int | None = None) -> None:
        self._offset += 1
        record = Record(topic, 0, self._offset, self.now_us if at_us is None else at_us, key, value)
        self._perform(self.host.on_records([record], self.now_us))

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Emit) and effect.topic == topics.MODEL_PREDICTIONS:
                batch = CODEC.decode(ModelPredictions, effect.value)
                self.outcomes |= dict(zip(batch.query_ids, batch.outcomes, strict=True))
            elif isinstance(effect, Load):
                self.loads.append(effect.model.name)
                self._put(self.load_us.get(effect.model.name, LOAD_US), effect)
            elif isinstance(effect, Unload):
                self.unloads.append(effect.model)
            elif isinstance(effect, Predict):
                self._put(MS, effect)

    def _put(self, after_us: int, effect: Load | Predict) -> None:
        self._offset += 1
        self._later.append(_Later(self.now_us + after_us, self._offset, effect))
        self._later.sort()

    def _tell(self, effect: Load | Predict) -> None:
        if isinstance(effect, Predict):
            answers = Predicted((Outcome.OK,) * len(effect.rows), np.zeros(len(effect.rows), np.int64))
            self._perform(self.host.on_predicted(effect.batch_id, Ran(answers, MS), self.now_us))
            return
        name, fault = effect.model.name, "a file is gone" if effect.model.name in self.broken else None
        self.copies = {*self.copies, (name, effect.copy)}
        size_bytes, took_us = self.sizes.get(name, MIB), self.load_us.get(name, LOAD_US)
        self._perform(self.host.on_loaded(Loaded.of(effect, fault, took_us, size_bytes), self.now_us))


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_all_that_fits_is_in_memory_before_the_host_is_ready(schedule: str) -> None:
    """And not before all models are known; then the first query of each is answered at once."""
    bench = Bench(budget=3, schedule=schedule)
    bench.add("a", "b", "c")
    bench.run(1)
    assert bench.loads == []
    bench.start()
    assert bench.host.needs().group.is_getting_ready
    bench.run(0.25)
    assert bench.host.needs().group.is_getting_ready
    bench.run(0.1)
    assert not bench.host.needs().group.is_getting_ready
    asked = [bench.ask(name, slack_us=10 * MS) for name in "abc"]
    bench.run(0.1)
    assert [bench.outcomes[query] for query in asked] == [Outcome.OK] * 3


def test_a_host_without_models_is_ready() -> None:
    """Nothing keeps it from taking queries of models to come."""
    bench = Bench()
    bench.start()
    assert not bench.host.needs().group.is_getting_ready


def test_where_not_all_fit_the_most_asked_are_there() -> None:
    """First the own ones by the plan's rates, then those that were run lately, then as they were published."""
    bench = Bench(budget=6)
    bench.add(*"abcdefgh")
    bench.profile("b", 5)
    bench.profile("e", 9)
    bench.profile("c", 20, sizes=())  # it was loaded, and never asked
    bench.plan(("one", "g", 1.0), ("one", "d", 3.0), ("two", "h", 9.0), ("one", "f", 0.0))
    bench.start()
    bench.run(2)
    assert bench.loads == ["d", "g", "f", "h", "e", "b"]
    assert bench.unloads == []


def test_a_large_model_that_does_not_fit_keeps_no_small_one_out() -> None:
    """It is loaded when it is asked."""
    bench = Bench(budget=3)
    bench.sizes["b"] = 3 * MIB
    bench.add("a", "b", "c")
    bench.start()
    bench.run(1)
    assert (bench.names(), bench.host.needs().group.is_getting_ready) == ({"a", "c"}, False)
    query = bench.ask("b")
    bench.run(1)
    assert bench.outcomes[query] == Outcome.OK


def test_what_nobody_has_asked_makes_room_first_and_of_it_the_least_asked() -> None:
    """The plan expects most of a; c was asked here."""
    bench = Bench(budget=3)
    bench.add("a", "b", "c", "d", "e")
    bench.start()
    bench.run(1)
    assert bench.names() == {"a", "b", "c"}
    bench.ask("c")
    bench.run(1)
    bench.ask("d")
    bench.run(1)
    assert bench.names() == {"a", "c", "d"}
    bench.ask("e")
    bench.run(1)
    assert bench.names() == {"c", "d", "e"}


def test_what_a_plan_brings_takes_the_place_of_the_least_asked_that_is_asked_elsewhere() -> None:
    """All three are another host's by the plan; the last one was loaded last, as it was asked least."""
    bench = Bench(budget=3)
    bench.add("a", "b", "c", "d")
    bench.start()
    bench.run(1)
    bench.plan(("two", "a", 3.0), ("two", "b", 2.0), ("two", "c", 1.0), ("one", "d", 1.0))
    bench.run(1)
    assert bench.names() == {"a", "b", "d"}


def test_a_model_that_is_added_is_loaded_at_once_if_there_is_room() -> None:
    """Nobody is unloaded for one that nobody asks."""
    bench = Bench(budget=2)
    bench.add("a")
    bench.start()
    bench.run(1)
    bench.add("b")
    bench.run(1)
    assert bench.names() == {"a", "b"}
    bench.add("c")
    bench.run(1)
    assert (bench.names(), bench.unloads) == ({"a", "b"}, [])


def test_what_a_removed_model_leaves_is_filled() -> None:
    """The next one is there before anybody asks it."""
    bench = Bench(budget=1)
    bench.add("a", "b")
    bench.start()
    bench.run(1)
    bench.remove("a")
    bench.run(1)
    assert bench.names() == {"b"}


def test_a_version_that_takes_over_is_loaded_before_it_is_asked_and_what_made_room_for_it_comes_back() -> None:
    """Both versions need room for a moment; afterwards all fit again."""
    bench = Bench(budget=2)
    bench.add("a", "b")
    bench.start()
    bench.run(1)
    bench.add("a", version="2")
    bench.run(3)
    assert bench.resident == {("a", "2"), ("b", "1")}
    query = bench.ask("a", slack_us=10 * MS)
    bench.run(0.1)
    assert bench.outcomes[query] == Outcome.OK


def test_after_the_end_of_their_process_all_models_are_there_again() -> None:
    """Also those that nobody had asked."""
    bench = Bench(budget=3)
    bench.add("a", "b", "c")
    bench.start()
    bench.run(1)
    bench.end_process()
    bench.run(1)
    assert bench.names() == {"a", "b", "c"}
    query = bench.ask("b", slack_us=10 * MS)
    bench.run(0.1)
    assert bench.outcomes[query] == Outcome.OK


def test_a_process_that_ends_while_models_are_loaded_ahead_does_not_keep_them_out() -> None:
    """The first one is there, the second is being loaded."""
    bench = Bench(budget=3)
    bench.add("a", "b", "c")
    bench.start()
    bench.run(0.15)
    bench.end_process()
    bench.run(1)
    assert bench.names() == {"a", "b", "c"}


def test_a_broken_model_takes_no_other_ones_place_while_nobody_asks_it() -> None:
    """It was to be loaded into room that there was; what came instead stays, however often it is tried."""
    bench = Bench(budget=2)
    bench.broken.add("a")
    bench.add("a", "b", "c")
    bench.start()
    bench.run(60)
    assert bench.names() == {"b", "c"}
    assert bench.unloads == []
    bench.broken.clear()
    bench.ask("a")
    bench.run(30)
    query = bench.ask("a")
    bench.run(1)
    assert bench.outcomes[query] == Outcome.OK


def test_a_canary_that_nobody_needs_takes_no_other_ones_place_until_its_model_is_asked() -> None:
    """The room is full; with the first query the canary is loaded, too."""
    bench = Bench(budget=2)
    bench.add("a", "b")
    bench.start()
    bench.run(1)
    bench.add("a", version="2", shares={"2": 0.5})
    bench.run(3)
    assert bench.resident == {("a", "1"), ("b", "1")}
    bench.ask("a")
    bench.run(3)
    assert bench.resident == {("a", "1"), ("a", "2")}


def test_a_model_whose_loading_hangs_keeps_the_others_out_for_20_s_at_a_start() -> None:
    """While nobody waits it is left alone for so long, as libraries take some seconds; a query makes it 5 s."""
    bench = Bench(budget=3)
    bench.load_us["a"] = 1_000 * SECOND
    bench.add("a", "b", "c")
    bench.start()
    bench.run(19)
    assert bench.loads == ["a"]
    bench.run(2)
    assert bench.names() == {"b", "c"}
    bench = Bench(budget=3)
    bench.load_us["a"] = 1_000 * SECOND
    bench.add("a", "b", "c")
    bench.start()
    bench.run(6)
    query = bench.ask("b")
    bench.run(0.5)
    assert bench.outcomes[query] == Outcome.OK


MODELS = st.lists(st.tuples(st.integers(1, 4), st.floats(0, 9)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(MODELS, st.integers(1, 12), st.sampled_from(sorted(SCHEDULES)))
def test_before_the_first_query_nothing_more_would_fit(
    models: list[tuple[int, float]], budget: int, schedule: str
) -> None:
    """No load was for nothing, and a model that is not there would not fit beside those that are asked more."""
    bench = Bench(budget=budget, schedule=schedule)
    names = [f"m{number}" for number in range(len(models))]
    bench.sizes = {name: size * MIB for name, (size, _) in zip(names, models, strict=True)}
    bench.add(*names)
    bench.plan(*((("one", name, per_s)) for name, (_, per_s) in zip(names, models, strict=True)))
    bench.start()
    bench.run(2)
    there = bench.names()
    assert not bench.host.needs().group.is_getting_ready
    assert (bench.unloads, sorted(bench.loads)) == ([], sorted(there))
    left, expected = budget, set[str]()
    for name, (size, _) in sorted(zip(names, models, strict=True), key=lambda each: -each[1][1]):
        if size <= left:
            left -= size
            expected.add(name)
    assert there == expected
