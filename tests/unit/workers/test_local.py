"""Models inside the selection role: the same records, routed in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, ModelPredictions, ModelQueries, Outcome, Prediction, Query, Status, Tensor
from schemas.sizes import MAX_BYTES
from streams.operators.contract import (
    BEHIND,
    Effects,
    Emit,
    FetchStates,
    Load,
    Loaded,
    Position,
    Predict,
    Predicted,
    Ran,
    Record,
    Skip,
)
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.operators.selection.serving import Serving
from streams.runtime.role.local import Local, LocalCodec
from tests.workers import model, worker

CODEC = Codec()
NOW = 1_700_000_000_000_000
MS = 1_000


class Scene:
    """Selection with model `near` inside and model `far` behind Kafka, asked together."""

    def __init__(self, limit: int = 100, *, writes_behind: bool = False) -> None:
        codec = LocalCodec(CODEC)
        self.model = worker("near", limit=limit, codec=codec)
        inside = frozenset({topics.model_queries("near")})
        selection = Selection(codec, SelectionSettings(partitions=4, inside=inside))
        self.kernel = Local(selection, {"near": self.model}, codec, writes_behind=writes_behind)
        self.kernel.on_partitions(dict.fromkeys(range(4), 0))
        self.kernel.on_loaded(Loaded("near", "7"), NOW)
        self.waiting: list[Predict] = []

    def serve(self, *models: str) -> None:
        """Publish an application that asks all of these models, and let its state be known."""
        application = Application("digits", models, "exp4", default_output=-1)
        self.read(topics.APPLICATIONS, CODEC.encode(application), b"digits")
        for name in models:
            self.read(topics.MODELS, CODEC.encode(model(name)), name.encode())
        (wanted,) = [effect for effect in self.ask("first") if isinstance(effect, FetchStates)]
        self.keep(self.kernel.on_states(dict.fromkeys(wanted.keys), NOW))
        if "near" in models:
            self.predict(0)

    def read(self, topic: str, value: bytes, key: bytes | None = None, offset: int = 0) -> Effects:
        """Hand one record to the kernel; batches that it wants predicted wait."""
        return self.keep(self.kernel.on_records([Record(topic, 0, offset, NOW, key, value)], NOW))

    def ask(self, query_id: str, offset: int = 0) -> Effects:
        """Send a query."""
        row = Tensor.of(np.zeros(2, np.float32))
        return self.read(topics.QUERIES, CODEC.encode(Query(query_id, "digits", row)), offset=offset)

    def keep(self, effects: Effects) -> Effects:
        """Let batches wait; returns the other effects."""
        self.waiting += [effect for effect in effects if isinstance(effect, Predict)]
        return [effect for effect in effects if not isinstance(effect, Predict)]

    def beside(self, version: str, share: float) -> None:
        """Have a version run beside the inside one."""
        wanted = replace(model("near"), shares={version: share})
        self.read(topics.MODELS, CODEC.encode(model("near", version)), f"near@{version}".encode())
        self.read(topics.MODELS, CODEC.encode(wanted), b"near")
        (load,) = [e for e in self.kernel.on_timer(NOW + 300 * MS) if isinstance(e, Load)]
        (trial,) = self.kernel.on_loaded(Loaded("near", version, load.copy), NOW)
        assert isinstance(trial, Predict)
        self.kernel.on_predicted(trial.batch_id, Ran(Predicted((Outcome.OK,), np.array([0])), MS), NOW)

    def predict(self, *labels: int | str, version: str = "7") -> Effects:
        """Let a version answer its batch; one label stands for all rows."""
        batch = next(each for each in self.waiting if each.version == version)
        self.waiting.remove(batch)
        rows = len(batch.rows)
        found = labels * rows if len(labels) == 1 else labels
        answers = tuple(map(str, found)) if isinstance(found[0], str) else np.array(found)
        results = Predicted((Outcome.OK,) * rows, answers)
        effects = self.kernel.on_predicted(batch.batch_id, Ran(results, MS), NOW)
        return self.keep(effects + self.kernel.on_timer(NOW))


def prediction(effects: Effects) -> tuple[Prediction, tuple[Position, ...]]:
    """Return the one prediction and what it completes."""
    (emit,) = [effect for effect in effects if isinstance(effect, Emit)]
    assert emit.topic == topics.PREDICTIONS
    return CODEC.decode(Prediction, emit.value), emit.completes


def test_a_model_inside_is_asked_without_kafka() -> None:
    """Its answer completes the query as any other would."""
    scene = Scene()
    scene.serve("near")
    assert [effect for effect in scene.ask("q", offset=5) if isinstance(effect, Emit)] == []
    effects = scene.predict(7)
    answer, completes = prediction(effects)
    assert len(effects) == 1  # nothing completes a position of a record that was never consumed
    assert (answer.query_id, answer.answer, answer.status) == ("q", 7, Status.COMPLETE)
    assert completes == (Position(topics.QUERIES, 0, 5),)


def test_inline_models_and_others_can_be_asked_together() -> None:
    """The one is asked in memory, the other over Kafka; the deadline answers with what has arrived."""
    scene = Scene()
    scene.serve("near", "far")
    emits = [effect for effect in scene.ask("q") if isinstance(effect, Emit)]
    assert [emit.topic for emit in emits] == [topics.model_queries("far")]
    assert [effect for effect in scene.predict(7) if isinstance(effect, Emit)] == []
    due_us = scene.kernel.needs().deadline_us
    assert due_us is not None
    partial = [CODEC.decode(Prediction, e.value) for e in scene.kernel.on_timer(due_us + MS) if isinstance(e, Emit)]
    assert ("q", 7, Status.PARTIAL) in [(answer.query_id, answer.answer, answer.status) for answer in partial]


def test_what_an_inline_model_has_no_room_for_is_answered_at_once() -> None:
    """A refused row is an expired one, as in a worker."""
    scene = Scene(limit=1)
    scene.serve("near")
    scene.ask("is predicted", offset=2)
    scene.ask("waits")
    effects = scene.ask("too many", offset=1)
    answer, _ = prediction(effects)
    assert (answer.query_id, answer.status, answer.reason) == ("too many", Status.DEFAULT, "expired_in_queue")
    assert scene.kernel.needs().held == 1


def test_rows_that_broke_the_asker_have_failed_when_they_are_asked_again() -> None:
    """Their neighbours, and rows that come later, are answered as ever."""
    scene = Scene()
    scene.serve("near")
    scene.ask("culprit", offset=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Serving, "on_outputs", broken)
        with pytest.raises(ZeroDivisionError):
            scene.predict(7)
    scene.kernel.on_partitions(dict.fromkeys(range(4), 0))
    scene.ask("culprit", offset=5)
    answer, completes = prediction(scene.predict(7))
    assert (answer.query_id, answer.status, answer.answer) == ("culprit", Status.DEFAULT, -1)
    assert completes == (Position(topics.QUERIES, 0, 5),)
    scene.ask("other", offset=6)
    assert prediction(scene.predict(7))[0].answer == 7


def test_a_model_goes_on_when_its_answer_broke_the_asker() -> None:
    """Its next batch was wanted in the same call."""
    scene = Scene()
    scene.serve("near")
    scene.ask("culprit", offset=5)
    scene.ask("next", offset=6)
    (batch,) = scene.waiting
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Serving, "on_outputs", broken)
        ran = Ran(Predicted((Outcome.OK,), np.array([7])), MS, is_blocking=True)
        with pytest.raises(ZeroDivisionError):
            scene.kernel.on_predicted(batch.batch_id, ran, NOW)
    scene.kernel.on_partitions(dict.fromkeys(range(4), 0))
    assert scene.kernel.needs().deadline_us == 0
    (following,) = scene.kernel.on_timer(NOW)
    assert isinstance(following, Predict)


def broken(*_: object) -> None:
    """Stumble over what a model answered."""
    raise ZeroDivisionError("combiner")


def test_statistics_are_those_of_the_role_and_its_models() -> None:
    """One report shows both."""
    scene = Scene()
    scene.serve("near")
    scene.ask("q")
    scene.predict(1)
    figures = scene.kernel.statistics()
    assert figures["queries_total{application=digits}"] == 2
    assert figures["rows_total{model=near,outcome=ok}"] == 2


def test_a_canary_inside_answers_as_its_neighbour_does() -> None:
    """What it is routed completes its query."""
    scene = Scene()
    scene.serve("near")
    scene.beside("2", 1.0)
    scene.ask("q", offset=5)
    answer, completes = prediction(scene.predict(9, version="2"))
    assert (answer.answer, answer.outputs[0].version) == (9, "2")
    assert completes == (Position(topics.QUERIES, 0, 5),)


def test_what_a_shadow_inside_answers_is_written_and_not_taken_for_an_answer() -> None:
    """Whoever compares it reads that, whatever runs where."""
    scene = Scene()
    scene.serve("near")
    scene.beside("2", 0.0)
    scene.ask("q")
    (emit,) = scene.predict(9, version="2")
    assert isinstance(emit, Emit)
    assert (emit.topic, emit.completes) == (topics.SHADOWS, ())
    assert CODEC.decode(ModelPredictions, emit.value).query_ids == ("q",)
    assert prediction(scene.predict(7))[0].answer == 7


def test_what_a_model_inside_answers_is_written_behind_if_wanted() -> None:
    """For readers of the log; it completes nothing, and selection skips it, wherever it reads it."""
    scene = Scene(writes_behind=True)
    scene.serve("near")
    scene.ask("q", offset=5)
    effects = [effect for effect in scene.predict(7) if isinstance(effect, Emit)]
    behind, answered = sorted(effects, key=lambda emit: emit.topic)
    assert (behind.topic, answered.topic) == (topics.MODEL_PREDICTIONS, topics.PREDICTIONS)
    assert (behind.completes, behind.headers) == ((), (BEHIND,))
    assert CODEC.decode(ModelPredictions, behind.value).query_ids == ("q",)
    read = Record(behind.topic, behind.partition, 3, NOW, behind.key, behind.value, behind.headers)
    assert scene.kernel.on_records([read], NOW) == [Skip((read.position,), "")]


def test_a_model_whose_queue_is_full_fills_the_role() -> None:
    """Its rows count for as many as the role may have in hand, divided by those that may wait for the model."""
    scene = Scene()
    roomy = Local(scene.kernel, {"near": scene.model}, LocalCodec(CODEC), places=2.5)
    scene.serve("near")
    scene.ask("is predicted", offset=2)
    scene.ask("waits")
    assert scene.kernel.needs().held == 1
    assert roomy.needs().held == 3


def test_texts_that_no_record_could_hold_have_failed() -> None:
    """A label with half a surrogate cannot be answered; its neighbour is."""
    scene = Scene()
    scene.serve("near")
    scene.ask("busy", offset=0)
    scene.ask("broken", offset=1)
    scene.ask("fine", offset=2)
    scene.predict(1)
    found = {p.query_id: (p.answer, p.reason) for p in predictions(scene.predict("\ud800", "cat"))}
    assert found == {"broken": (-1, "model_failed"), "fine": ("cat", None)}


def predictions(effects: Effects) -> list[Prediction]:
    """Return all predictions."""
    return [CODEC.decode(Prediction, effect.value) for effect in effects if isinstance(effect, Emit)]


def test_an_input_that_fits_no_model_record_is_refused_inline_as_anywhere() -> None:
    """A query filled to the last byte is answered for, and its model is not asked."""
    scene = Scene()
    scene.serve("near")
    room = MAX_BYTES - len(CODEC.encode(Query("q", "digits", "x" * 300_000))) + 300_000
    answer, _ = prediction(scene.read(topics.QUERIES, CODEC.encode(Query("q", "digits", "x" * room))))
    assert (answer.status, answer.reason, scene.waiting) == (Status.DEFAULT, "invalid_input", [])


class Refusing(Codec):
    """A codec that nothing about models may reach."""

    def encode(self, record: object) -> bytes:
        """Refuse model queries and predictions."""
        assert not isinstance(record, ModelPredictions | ModelQueries)
        return super().encode(record)


def test_what_a_model_inside_is_asked_and_says_is_never_encoded() -> None:
    """Both ways; what leaves the process is."""
    codec = LocalCodec(Refusing())
    queries = ModelQueries(("q",), 0, (NOW,), Tensor.of(np.zeros((1, 2), np.float32)))
    assert codec.decode(ModelQueries, codec.encode(queries)) is queries
    predictions = ModelPredictions(
        "m", "1", "w", ("q",), (Outcome.OK,), Tensor.of(np.array([1])), None, (0,), 1, 1, 1, 0
    )
    assert codec.decode(ModelPredictions, codec.encode(predictions)) is predictions
    emit = Emit("t", 0, None, LocalCodec(CODEC).encode(queries))
    assert CODEC.decode(ModelQueries, LocalCodec(CODEC).written(emit).value) == queries


def test_what_may_not_fit_into_a_record_is_encoded_inside_too() -> None:
    """So that it is refused as anywhere."""
    with pytest.raises(AssertionError):
        LocalCodec(Refusing()).encode(ModelQueries(("q",), 0, (NOW,), ("text",)))
