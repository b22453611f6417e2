"""Queries with many candidates take turns: they delay nobody for longer than one turn, and each application has its."""

from __future__ import annotations

import numpy as np

from schemas import topics
from schemas.records import Application, Model, Prediction, Query, Source, Tensor
from streams.operators.contract import LOOKED_UP, Emit, FetchFeatures, FetchStates, Record
from streams.operators.selection.features.fair_queue import TURN
from streams.operators.selection.kernel import Selection, SelectionSettings
from tests.loops import CODEC, row

NOW = 1_700_000_000_000_000
FILMS = Source("films", 1, "candidate", "redis")
IDS = 64


class Selecting:
    """A selection kernel with two applications that rank ids, and one that does not."""

    def __init__(self) -> None:
        self.kernel = Selection(CODEC, SelectionSettings(1))
        self.asked = 0
        self.now_us = NOW
        ranking = {"policy": "ridge", "parameters": {"features": 1}, "sources": (FILMS,), "default_output": -1}
        model = Model("m", "1", "function", "", "", "scores", None, ())
        for record in (
            Application("films", ("m",), slo_ms=500, **ranking),  # type: ignore[arg-type]
            Application("books", ("m",), slo_ms=500, **ranking),  # type: ignore[arg-type]
            Application("plain", ("m",), "single", slo_ms=500, default_output=-1),
            model,
        ):
            topic = topics.MODELS if record is model else topics.APPLICATIONS
            self.take([Record(topic, 0, 0, NOW, record.name.encode(), CODEC.encode(record))])

    def take(self, records: list[Record]) -> list[Emit | FetchFeatures]:
        """Let records be read; states are new."""
        return self.known(self.kernel.on_records(records, self.now_us))

    def turn(self) -> list[Emit | FetchFeatures]:
        """Let the timer be due."""
        assert self.kernel.needs().deadline_us == 0
        return self.known(self.kernel.on_timer(self.now_us))

    def known(self, effects: list[object]) -> list[Emit | FetchFeatures]:
        """Say of the wanted states that there are none."""
        for wanted in [effect for effect in effects if isinstance(effect, FetchStates)]:
            effects = [*effects, *self.kernel.on_states(dict.fromkeys(wanted.keys), self.now_us)]
        return [effect for effect in effects if isinstance(effect, (Emit, FetchFeatures))]

    def query(self, application: str, candidates: tuple[str, ...] | Tensor | None = None) -> Record:
        """Make a query's record."""
        self.asked += 1
        query = Query(f"{application}-{self.asked}", application, row(1), sent_us=self.now_us, candidates=candidates)
        return Record(topics.QUERIES, 0, self.asked, self.now_us, b"", CODEC.encode(query))

    def by_id(self, application: str, count: int) -> list[Record]:
        """Make queries with ids that nobody knows."""
        return [self.query(application, tuple(f"{self.asked}-{n}" for n in range(IDS))) for _ in range(count)]


def looked_up(effects: list[Emit | FetchFeatures]) -> list[str]:
    """Return the keys that are asked for."""
    return [key for effect in effects if isinstance(effect, FetchFeatures) for key in effect.keys]


def answers(effects: list[Emit | FetchFeatures]) -> list[Prediction]:
    """Return what was answered."""
    found = [effect for effect in effects if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS]
    return [CODEC.decode(Prediction, effect.value) for effect in found]


def test_few_candidates_are_looked_up_at_once() -> None:
    """As long as a turn has room, nobody waits for one."""
    selecting = Selecting()
    effects = selecting.take(selecting.by_id("films", TURN // IDS))
    assert len(looked_up(effects)) == TURN
    assert selecting.kernel.needs().deadline_us != 0


def test_a_flood_of_candidates_leaves_each_turn_to_others() -> None:
    """A query behind a hundred of them is asked about at once; each turn looks up so many ids and no more."""
    selecting = Selecting()
    effects = selecting.take([*selecting.by_id("films", 100), selecting.query("plain")])
    assert [effect.topic for effect in effects if isinstance(effect, Emit)] == [topics.model_queries("m")]
    assert len(looked_up(effects)) == TURN
    for _ in range(5):
        assert len(looked_up(selecting.turn())) == TURN
        effects = selecting.take([selecting.query("plain")])  # where somebody waits, only the timer goes on with it
        assert [effect.topic for effect in effects] == [topics.model_queries("m")]


def test_the_application_that_has_had_least_goes_first() -> None:
    """One that asks a little is through soon, however many queries of the other came before."""
    selecting = Selecting()
    selecting.take(selecting.by_id("films", 200))
    selecting.turn()
    selecting.take(selecting.by_id("books", 20))
    keys = [key for _ in range(4) for key in looked_up(selecting.turn())]
    assert len(keys) == 4 * TURN
    assert len(selecting.kernel._turns._jobs["books"]) == 20 - 2 * TURN // IDS


def test_candidates_whose_features_all_come_at_once_are_ranked_in_turns() -> None:
    """Waits that end together are no turn of their own."""
    selecting = Selecting()
    keys = looked_up(selecting.take(selecting.by_id("films", 40)))
    while selecting.kernel.needs().deadline_us == 0:
        keys += looked_up(selecting.turn())
    assert len(keys) == 40 * IDS
    found = selecting.take([Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, 0, key.encode(), None) for key in keys])
    assert len(answers(found)) == TURN // IDS
    while selecting.kernel.needs().deadline_us == 0:
        found += selecting.turn()
    assert sorted(int(answer.query_id.rpartition("-")[2]) for answer in answers(found)) == list(range(1, 41))
    assert {answer.reason for answer in answers(found)} == {None}


def test_whoever_has_waited_too_long_is_answered_by_default() -> None:
    """In time for its deadline no more, so without the work; and its room is free."""
    selecting = Selecting()
    selecting.take(selecting.by_id("films", 100))
    selecting.now_us += 500_000
    found: list[Emit | FetchFeatures] = []
    while selecting.kernel.needs().deadline_us == 0:
        found += selecting.turn()
    late = [answer for answer in answers(found) if answer.reason == "over_limit"]
    assert len(late) == 100
    assert looked_up(found) == []
    assert selecting.kernel.statistics()["held{application=films}"] == 0


def test_rows_are_ranked_in_turns_too() -> None:
    """Candidates that bring their features take time as well."""
    selecting = Selecting()
    rows = Tensor.of(np.zeros((256, 1), np.float64))
    effects = selecting.take([selecting.query("films", rows) for _ in range(10)])
    assert len(answers(effects)) == TURN // 256
    assert len(answers(selecting.turn())) == TURN // 256


def test_a_revoked_partition_takes_its_queries_from_the_turns() -> None:
    """Its new owner reads them again."""
    selecting = Selecting()
    selecting.take(selecting.by_id("films", 100))
    selecting.kernel.on_partitions({0: None})
    assert selecting.kernel.needs().deadline_us is None
    assert selecting.kernel.statistics()["held{application=films}"] == 0
