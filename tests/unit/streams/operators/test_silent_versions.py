"""A version that gives no answer: its silence names it, and costs it 1, whatever stands in for it or comes later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from policies import draw
from schemas import topics
from schemas.records import (
    Decision,
    ModelOutput,
    ModelQueries,
    Outcome,
    Prediction,
    Stage,
    Status,
    VersionLoss,
)
from streams.operators.configuration import Configuration
from streams.operators.contract import Emit, Record, Skip
from streams.operators.join.shadows import VersionLosses
from streams.operators.late_outputs import SideOutput
from tests.loops import CODEC, Loop, ScriptedModel, digits, model_predictions, version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Application, Value
    from streams.operators.contract import Effects, Operator

SHARE = {"2": 0.4}


@dataclass
class Versioned(ScriptedModel):
    """A worker of two versions, drawn as real ones draw; the canary answers `canary`, and None is silence."""

    canary: Value | Outcome | None = None

    def _answered(self, record: Record) -> Effects:
        effects: Effects = [Skip((record.position,), "")]
        queries = CODEC.decode(ModelQueries, record.value)
        for row_id in queries.query_ids:
            name = draw.version(row_id, SHARE) or "1"
            answer = self.canary if name == "2" else 7
            if answer is None:
                continue
            outcome = answer if isinstance(answer, Outcome) else Outcome.OK
            batch = model_predictions(self.name, {row_id: answer}, outcome)._replace(version=name)
            effects.append(Emit(topics.MODEL_PREDICTIONS, queries.reply_partition, None, CODEC.encode(batch)))
        return effects


@dataclass
class TwoVersions(Loop):
    """A loop whose model `good` runs in two versions."""

    canary: Value | Outcome | None = field(default=None, kw_only=True)

    def _worker(self, name: str) -> Callable[[], Operator]:
        return super()._worker(name) if name != "good" else lambda: Versioned(name, self.models[name], self.canary)

    def begin(self) -> None:
        """Start the canary."""
        self.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", "1", SHARE)), b"good")
        self.driver.run(0.1)

    def tell(self, count: int, label: int = 7) -> dict[str, tuple[VersionLoss, ...]]:
        """Ask and tell so often; returns what the versions cost by query."""
        asked = [self.query() for _ in range(count)]
        self.driver.run(1)
        for query_id in asked:
            self.feedback(query_id, label)
        self.driver.run(1)
        return {seen.query_id: seen.versions for _, seen in self.observations()}


def drawn(query_id: str) -> str:
    """Return the version that a query is for."""
    return draw.version(query_id, SHARE) or "1"


def loop(canary: Value | Outcome | None = None, **changes: Any) -> TwoVersions:
    """Return a loop with a canary that answers so."""
    models: Mapping[str, Any] = {name: lambda _: 7 for name in changes.pop("models", ("good",))}
    given = digits(**({"models": tuple(models), "policy": "single"} | changes))
    made = TwoVersions(models, given, canary=canary)
    made.begin()
    return made


@pytest.mark.parametrize("canary", [None, Outcome.FAILED, Outcome.EXPIRED, Outcome.INVALID], ids=str)
def test_an_answer_that_a_canary_does_not_give_costs_it_one(canary: Outcome | None) -> None:
    """However it fails: silent, crashing, slow or refusing. The other version's answers count for that one."""
    cost = loop(canary).tell(40)
    assert {drawn(query_id) for query_id in cost} == {"1", "2"}
    for query_id, losses in cost.items():
        assert losses == (VersionLoss("good", drawn(query_id), float(drawn(query_id) == "2")),)


def test_a_silent_version_is_named_in_the_answer() -> None:
    """The version that the query's id draws, with or without an answer."""
    made = loop()
    made.tell(20)
    assert {p.query_id: p.outputs[0].version for p in made.predictions()} == {
        p.query_id: drawn(p.query_id) for p in made.predictions()
    }


def test_silence_costs_at_the_end_of_a_window_too() -> None:
    """Without feedback an answer costs the default loss, and no answer 1: a canary is not judged by clicks alone."""
    made = loop(default_loss=0.25)
    for _ in range(20):
        made.query()
    made.driver.run(70)
    for _, seen in made.observations():
        name = drawn(seen.query_id)
        assert seen.versions == (VersionLoss("good", name, 1.0 if name == "2" else 0.25),)
    assert len(made.observations()) == 20


def test_a_late_answer_of_an_ensemble_teaches_its_arm_and_does_not_excuse_its_version() -> None:
    """The vote learns how good the model is; whoever would serve by this version has had no answer from it."""
    made = loop(models=("good", "bad"), policy="exp4")
    silent = next(f"s{n}" for n in range(99) if drawn(f"s{n}") == "2")
    made.query(silent)
    made.driver.run(1)
    late = model_predictions("good", {silent: 3})._replace(version="2")
    made.driver.produce(topics.MODEL_PREDICTIONS, 0, CODEC.encode(late))
    made.driver.run(1)
    made.feedback(silent, 3)
    made.driver.run(1)
    ((_, seen),) = made.observations()
    assert (seen.losses, seen.versions) == ((0.0, 1.0), (VersionLoss("good", "2", 1.0),))


def test_a_query_that_shares_its_id_is_drawn_by_the_id_its_row_travels_under() -> None:
    """Two applications ask under one id; the second's row has a longer one, which may draw the other version."""
    made = loop()
    made.configure(other(made.application))
    first = next(f"s{n}" for n in range(999) if drawn(f"s{n}") == "2" and drawn(f"s{n}@1") == "1")
    made.query(first)
    made.query(first, application="other")
    made.driver.run(1)
    versions = {p.application: p.outputs[0].version for p in made.predictions()}
    assert versions == {"digits": "2", "other": "1"}


def test_late_rows_of_a_renamed_query_find_their_prediction() -> None:
    """They are told to the joiner under the query's own id."""
    made = loop(models=("good", "bad"), policy="exp4")
    made.configure(other(made.application))
    name = next(f"s{n}" for n in range(999) if drawn(f"s{n}") == drawn(f"s{n}@1") == "2")
    made.query(name)
    made.query(name, application="other")
    made.driver.run(1)
    late = model_predictions("good", {f"{name}@1": 3})._replace(version="2")
    made.driver.produce(topics.MODEL_PREDICTIONS, 0, CODEC.encode(late))
    made.driver.run(1)
    (record,) = made.driver.read(topics.SHADOWS)
    assert name in str(record.value)
    assert f"{name}@" not in str(record.value)


@pytest.mark.parametrize(("named", "expected"), [("2", "2"), ("canary", "2"), ("stable", "1"), ("good@2", "2")])
def test_a_version_that_was_named_and_is_silent_is_named(named: str, expected: str) -> None:
    """By its number, whatever the query has called it."""
    made = TwoVersions({"good": lambda _: None}, digits(models=("good",), policy="single"))
    made.begin()
    made.driver.run(0)
    query_id = made.query(next(f"s{n}" for n in range(99) if drawn(f"s{n}") == "2"), version=named)
    made.driver.run(1)
    assert made.answer(query_id).outputs[0].version == expected


def test_a_silent_version_behind_a_graph_is_named() -> None:
    """Its row draws, under the row's own id."""
    made = loop(models=("good", "first"), stages=(Stage("a", "first"), Stage("b", "", after="a")), per_context=False)
    made.configure(replace(made.application, models=("good",)))
    made.driver.run(0.1)
    query_id = next(f"s{n}" for n in range(99) if drawn(f"s{n}/a.0/b.0") == "2")
    made.query(query_id)
    made.driver.run(1)
    (output,) = made.answer(query_id).outputs
    assert (output.outcome, output.version) == (Outcome.MISSING, "2")


DECISION = Decision((0,), 0, "digits", "single(arm=0)", ("good",), (1.0,))
SILENT = ModelOutput("good", "1", Outcome.MISSING, None)


def losses(output: ModelOutput, *beside: SideOutput) -> Sequence[tuple[str, float]]:
    """Return what versions cost on a query whose answers are all right."""
    configuration = Configuration(CODEC)
    model = CODEC.encode(version("good", "1", {"2": 0.0}))
    configuration.on_record(Record(topics.MODELS, 0, 0, 0, b"good", model))
    answered = Prediction(
        "q", "digits", None, DECISION, Status.PARTIAL, None, 7, 1.0, (output,), 0, 0, deadline_us=100, answered_us=90
    )
    found = VersionLosses(configuration).of(answered, beside, lambda _: 0.0)
    return [(each.version, each.loss) for each in found]


def test_a_decoded_answer_is_not_its_versions_own() -> None:
    """What a parity model has told in its place does not make it any quicker."""
    assert losses(SILENT._replace(answer=7, reconstructed=True)) == [("1", 1.0)]


def test_a_substitute_is_not_its_versions_own() -> None:
    """A running mean stands in for it."""
    assert losses(SILENT._replace(answer=7)) == [("1", 1.0)]


@pytest.mark.parametrize("outcome", [Outcome.OVERLOADED, Outcome.UNKNOWN_VERSION])
def test_a_version_that_was_not_asked_costs_nothing(outcome: Outcome) -> None:
    """Admission has refused the row, or nobody runs what was named."""
    assert losses(ModelOutput("good", "1", outcome, None)) == []


def test_an_output_of_nobody_is_nobodys() -> None:
    """Candidates that were ranked asked no model."""
    assert losses(ModelOutput("good", "", Outcome.OK, 7)) == []


@pytest.mark.parametrize(("written_us", "loss"), [(100, 0.0), (101, 1.0)])
def test_a_shadow_that_is_slower_than_the_deadline_has_not_answered(written_us: int, loss: float) -> None:
    """Had it served, its answer would have come too late."""
    shadow = SideOutput(ModelOutput("good", "2", Outcome.OK, 7), is_late=False, written_us=written_us)
    assert losses(ModelOutput("good", "1", Outcome.OK, 7), shadow) == [("1", 0.0), ("2", loss)]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.EXPIRED, Outcome.INVALID])
def test_a_shadow_that_does_not_answer_costs_one(outcome: Outcome) -> None:
    """Whatever it says instead."""
    shadow = SideOutput(ModelOutput("good", "2", outcome, None), is_late=False)
    assert losses(ModelOutput("good", "1", Outcome.OK, 7), shadow) == [("1", 0.0), ("2", 1.0)]


def other(application: Application) -> Application:
    """Return another application with the same models."""
    return replace(application, name="other")
