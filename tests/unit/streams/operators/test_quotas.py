"""What one application's clients do costs the others nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.records import Application, Model, ModelPredictions, ModelQueries, Outcome, Prediction, Query, Tensor
from streams.operators.contract import Emit, FetchStates, Record, Skip
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.topology import MAX_CONTEXT_BYTES
from tests.loops import CODEC, model_predictions, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effects

NOW = 1_700_000_000_000_000
PLACES = 800


class Served:
    """A selection kernel with one application for each of these models, of the same name."""

    def __init__(self, *names: str, **changes: object) -> None:
        self.kernel = Selection(CODEC, SelectionSettings(1, places=PLACES))
        self.now_us = NOW
        self.offset = 0
        for name in names:
            fields = {"slo_ms": 1_000.0, "default_output": -1, **changes}
            application = Application(name, (name,), "single", **fields)  # type: ignore[arg-type]
            model = Model(name, "1", "function", "", "", "label", None, ())
            for topic, record in ((topics.APPLICATIONS, application), (topics.MODELS, model)):
                made = self.kernel.on_records([Record(topic, 0, 0, NOW, name.encode(), CODEC.encode(record))], NOW)
                for wanted in (effect for effect in made if isinstance(effect, FetchStates)):
                    self.kernel.on_states(dict.fromkeys(wanted.keys), NOW)

    def ask(self, *queries: Query, headers: tuple[tuple[str, bytes], ...] = ()) -> Effects:
        """Let queries be read."""
        records = []
        for query in queries:
            self.offset += 1
            value = CODEC.encode(query)
            records.append(Record(topics.QUERIES, 0, self.offset, self.now_us, b"", value, headers))
        return self.kernel.on_records(records, self.now_us)

    def land(self, batch: ModelPredictions) -> Effects:
        """Let a model's answers be read."""
        value = CODEC.encode(batch)
        return self.kernel.on_records([Record(topics.MODEL_PREDICTIONS, 0, 0, self.now_us, None, value)], self.now_us)

    def figure(self, name: str, application: str) -> float:
        """Return a figure of an application."""
        return self.kernel.statistics()[f"{name}{{application={application}}}"]


def query(number: int, application: str, **changes: object) -> Query:
    """Make a query."""
    return Query(f"q{number}", application, row(number), **{"sent_us": NOW, **changes})  # type: ignore[arg-type]


def answers(effects: Effects) -> list[Prediction]:
    """Return what was answered."""
    return [
        CODEC.decode(Prediction, effect.value)
        for effect in effects
        if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS
    ]


def asked(effects: Effects) -> list[str]:
    """Return the ids under which models are asked."""
    rows = [effect for effect in effects if isinstance(effect, Emit) and effect.topic != topics.PREDICTIONS]
    return [query_id for effect in rows for query_id in CODEC.decode(ModelQueries, effect.value).query_ids]


def reasons(found: Sequence[Prediction]) -> Counter[str | None]:
    """Count the answers by reason."""
    return Counter(prediction.reason for prediction in found)


@pytest.mark.parametrize(("max_slo_ms", "answered_s"), [(None, 10.0), (2_500.0, 2.5), (3.6e9, 3_600.0)])
def test_a_query_waits_no_longer_than_its_application_lets_it(max_slo_ms: float | None, answered_s: float) -> None:
    """A client's hour is ten objectives, unless the application says how many."""
    served = Served("slow", max_slo_ms=max_slo_ms)
    served.ask(query(1, "slow", slo_ms=3.6e6))
    due = served.kernel.next_deadline()
    assert due is not None
    assert due - NOW == pytest.approx(answered_s * 1e6, abs=6_000)


def test_an_application_that_holds_much_leaves_every_other_its_share() -> None:
    """Beyond its limit its queries are answered at once with the reason; the others' are asked as ever."""
    served = Served("slow", "quick", "idle")
    refused = []
    for number in range(20):
        refused += answers(served.ask(*(query(100 * number + n, "slow") for n in range(100))))
    assert reasons(refused) == {"over_limit": 1_600}
    assert served.figure("held", "slow") == PLACES / 2
    assert served.figure("held_limit", "slow") == PLACES / 2
    assert served.figure("held_limit", "quick") == int(PLACES * 1.25 / 3)
    assert len(asked(served.ask(*(query(n, "quick") for n in range(50))))) == 50
    assert served.figure("held", "quick") == 50


@pytest.mark.parametrize("count", [2, 5, 40])
def test_applications_that_are_asked_alike_are_not_refused(count: int) -> None:
    """Nobody is to blame: the role stops reading when it holds as much as it may."""
    names = [f"m{n}" for n in range(count)]
    served = Served(*names)
    rng = np.random.default_rng(1)
    refused = []
    for _ in range(PLACES // 10):
        drawn = rng.integers(count, size=10)
        refused += answers(served.ask(*(query(served.offset + n, names[m]) for n, m in enumerate(drawn))))
    assert not refused


def test_what_is_answered_is_held_no_longer() -> None:
    """By its models, at its deadline, or because its partition has gone."""
    served = Served("slow", "quick")
    served.ask(*(query(n, "slow") for n in range(30)))
    served.land(model_predictions("slow", {f"q{n}": 1 for n in range(10)}))
    assert served.figure("held", "slow") == 20
    served.now_us += 2_000_000
    assert len(answers(served.kernel.on_timer(served.now_us))) == 20
    assert served.figure("held", "slow") == 0
    served.now_us = NOW
    served.ask(*(query(n, "quick") for n in range(30)))
    served.kernel.on_partitions({0: None})
    assert served.figure("held", "quick") == 0


def test_an_application_alone_may_hold_everything() -> None:
    """Nobody needs to be protected from it: the role reads no more when it holds as much as it may."""
    served = Served("slow")
    effects = [effect for n in range(20) for effect in served.ask(*(query(100 * n + m, "slow") for m in range(100)))]
    assert not answers(effects)
    assert len(asked(effects)) == 2_000


@pytest.mark.parametrize(
    ("changes", "headers", "places"),
    [
        ({}, (), 1),
        ({"input": Tensor.of(np.zeros(10_000))}, (), 1),
        ({"features": (1.0,) * 256}, (), 3),
        ({}, (("trace", b"x" * 10_240),), 11),
    ],
    ids=["small", "input", "features", "headers"],
)
def test_a_query_of_which_much_is_kept_takes_more_room(
    changes: dict[str, object], headers: tuple[tuple[str, bytes], ...], places: int
) -> None:
    """Its input is not kept once its model has been asked."""
    served = Served("slow", "quick")
    served.ask(query(1, "slow")._replace(**changes), headers=headers)  # type: ignore[arg-type]
    assert served.figure("held", "slow") == places


def test_one_id_asked_of_two_applications_is_answered_by_both() -> None:
    """Whoever answers first: they are asked under different ids, and each gets its own model's answer."""
    served = Served("digits", "fraud")
    ids = asked(served.ask(query(1, "digits"))) + asked(served.ask(query(1, "fraud")))
    assert len({*ids}) == 2
    (second,) = answers(served.land(model_predictions("fraud", {ids[1]: 2})))
    (first,) = answers(served.land(model_predictions("digits", {ids[0]: 1})))
    assert [(p.query_id, p.application, p.answer) for p in (first, second)] == [("q1", "digits", 1), ("q1", "fraud", 2)]


def test_a_copy_is_skipped_and_another_query_under_its_id_is_not() -> None:
    """Who asks is told by the token: an id cannot be used up by somebody else."""
    served = Served("digits")
    mine, other = query(1, "digits", reply_token="mine"), query(1, "digits", reply_token="other")
    (first,) = asked(served.ask(other))
    (second,) = asked(served.ask(mine))
    (skip,) = served.ask(mine)
    assert isinstance(skip, Skip)
    assert skip.reason == "duplicate_query"
    found = answers(served.land(model_predictions("digits", {second: 2, first: 1})))
    assert [(prediction.reply_token, prediction.answer) for prediction in found] == [("mine", 2), ("other", 1)]


def test_a_refused_query_does_not_end_the_waiting_of_another_with_its_id() -> None:
    """What is answered at once was never among those that wait."""
    served = Served("digits", "fraud")
    (row_id,) = asked(served.ask(query(1, "digits")))
    (refused,) = answers(served.ask(query(1, "fraud", sent_us=NOW - 10_000_000)))
    assert refused.reason == "expired"
    (answer,) = answers(served.land(model_predictions("digits", {row_id: 7})))
    assert answer.answer == 7


def test_a_long_context_names_its_state_by_a_digest() -> None:
    """Names are kept in many places; the answer still carries the context as it came."""
    served = Served("digits", per_context=True)
    contexts = ["é" * (MAX_CONTEXT_BYTES // 2), "é" * (MAX_CONTEXT_BYTES // 2) + "xx", "é" * 2_000]
    wanted = [e for n, c in enumerate(contexts) for e in served.ask(query(n, "digits", context=c))]
    names = [key.name for effect in wanted if isinstance(effect, FetchStates) for key in effect.keys]
    assert names[0] == f"digits/{contexts[0]}"
    assert [len(name) for name in names[1:]] == [len("digits/") + 128] * 2
    for passed_us in (700_000, 1_500_000):  # their states do not come; nor do their models answer
        found = answers(served.kernel.on_timer(NOW + passed_us))
    assert {prediction.context for prediction in found} == {*contexts}


def test_a_model_says_what_is_wrong_with_an_input() -> None:
    """Its words stand in the answer, beside the reason."""
    served = Served("digits")
    ids = asked(served.ask(query(1, "digits"), query(2, "digits")))
    message = "model digits takes float32[4], got float32[1]"
    batch = model_predictions("digits", dict.fromkeys(ids, Outcome.INVALID), Outcome.INVALID)
    found = answers(served.land(batch._replace(messages=(message, ""))))
    assert [(p.reason, p.message) for p in found] == [("invalid_input", message), ("invalid_input", "")]
