"""Inline models: the same records, handed on in memory."""

from __future__ import annotations

import numpy as np

from policies.fixed import Fixed
from schemas import topics
from schemas.codec import MAX_BYTES, Codec
from schemas.records import Application, Model, ModelPredictions, Outcome, Prediction, Query, Status, Tensor
from streams.operators.contract import Effects, Emit, FetchStates, HandOver, Position, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from workers.inputs.rows import Predicted
from workers.kernel.batcher import Batcher
from workers.kernel.results import Identity
from workers.kernel.routing import Routes, label
from workers.kernel.worker import ModelWorker
from workers.loopback import Loopback

CODEC = Codec()
NOW = 1_700_000_000_000_000
MS = 1_000


class Scene:
    """Selection with model `near` inline and model `far` behind Kafka, asked together."""

    def __init__(self, limit: int = 100) -> None:
        batcher = Batcher(Fixed(rows=8), limit=limit, objective_us=20 * MS)
        self.model = ModelWorker(CODEC, Identity("near", "1", "selection-1"), batcher, partitions=4)
        selection = Selection(CODEC, SelectionSettings(partitions=4, model_partitions=1))
        self.kernel = Loopback(selection, {topics.model_queries("near"): self.model})
        self.kernel.on_assigned(dict.fromkeys(range(4), 0))

    def serve(self, *models: str) -> None:
        """Publish an application that asks all of these models, and let its state be known."""
        application = Application("digits", models, "exp4", default_output=-1)
        self.read(topics.APPLICATIONS, CODEC.encode(application), b"digits")
        for name in models:
            model = Model(name, "1", "function", "", "", "label", None, ())
            self.read(topics.MODELS, CODEC.encode(model), name.encode())
        (wanted,) = [effect for effect in self.ask("first") if isinstance(effect, FetchStates)]
        self.kernel.on_states(dict.fromkeys(wanted.keys), NOW)
        self.model.take(NOW)

    def read(self, topic: str, value: bytes, key: bytes | None = None, offset: int = 0) -> Effects:
        """Hand one record to the kernel."""
        return self.kernel.on_records([Record(topic, 0, offset, NOW, key, value)], NOW)

    def ask(self, query_id: str, offset: int = 0) -> Effects:
        """Send a query."""
        row = Tensor.of(np.zeros(2, np.float32))
        return self.read(topics.QUERIES, CODEC.encode(Query(query_id, "digits", row)), offset=offset)

    def beside(self, version: str, share: float) -> ModelWorker:
        """Have a version run beside the inline one; return its kernel."""
        name = label(share)
        batcher = Batcher(Fixed(rows=8), limit=100, objective_us=20 * MS)
        kernel = ModelWorker(CODEC, Identity("near", version, "selection-1"), batcher, 4, name)
        self.model.route(Routes({version: share}, {version: kernel}))
        return kernel

    def predict(self, label: int) -> Effects:
        """Let the inline model answer its next batch."""
        return self.kernel.on_answers(self.answer(label), NOW)

    def answer(self, label: int) -> Effects:
        """Return what the inline model says to its next batch."""
        take = self.model.take(NOW)
        rows = len(take.rows)
        predicted = Predicted((Outcome.OK,) * rows, np.full(rows, label))
        return self.model.answer(take, predicted, NOW, MS)


def prediction(effects: Effects) -> tuple[Prediction, tuple[Position, ...]]:
    """Return the one prediction and what it completes."""
    (emit,) = [effect for effect in effects if isinstance(effect, Emit)]
    assert emit.topic == topics.PREDICTIONS
    return CODEC.decode(Prediction, emit.value), emit.completes


def test_an_inline_model_is_asked_without_a_record() -> None:
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
    due_us = scene.kernel.next_deadline()
    assert due_us is not None
    partial = [CODEC.decode(Prediction, e.value) for e in scene.kernel.on_timer(due_us + MS) if isinstance(e, Emit)]
    assert ("q", 7, Status.PARTIAL) in [(answer.query_id, answer.answer, answer.status) for answer in partial]


def test_what_an_inline_model_has_no_room_for_is_answered_at_once() -> None:
    """A refused row is an expired one, as in a worker."""
    scene = Scene(limit=1)
    scene.serve("near")
    scene.ask("waits")
    effects = scene.ask("too many", offset=1)
    answer, _ = prediction(effects)
    assert (answer.query_id, answer.status, answer.reason) == ("too many", Status.DEFAULT, "expired_in_queue")
    assert scene.kernel.held == 1


def test_rows_that_broke_the_asker_have_failed_when_they_are_asked_again() -> None:
    """Their neighbours, and rows that come later, are answered as ever."""
    scene = Scene()
    scene.serve("near")
    scene.ask("culprit", offset=5)
    scene.kernel.distrust(scene.answer(7))
    scene.kernel.on_assigned(dict.fromkeys(range(4), 0))
    scene.ask("culprit", offset=5)
    answer, completes = prediction(scene.predict(7))
    assert (answer.query_id, answer.status, answer.answer) == ("culprit", Status.DEFAULT, -1)
    assert completes == (Position(topics.QUERIES, 0, 5),)
    scene.ask("other", offset=6)
    assert prediction(scene.predict(7))[0].answer == 7


def test_statistics_are_those_of_the_role_and_its_models() -> None:
    """One report shows both."""
    scene = Scene()
    scene.serve("near")
    scene.ask("q")
    scene.predict(1)
    figures = scene.kernel.statistics()
    assert figures["queries_total{application=digits}"] == 2
    assert figures["rows_total{model=near,outcome=ok}"] == 1


def test_what_a_shadow_answers_is_written_and_not_taken_for_an_answer() -> None:
    """It goes to the joiner, whether its model runs inside the role or not."""
    scene = Scene()
    scene.serve("near")
    emit = Emit(topics.SHADOWS, 0, None, b"outputs of a shadow")
    assert scene.kernel.on_answers([emit], NOW) == [emit]


def test_what_an_inline_model_is_asked_and_says_is_never_encoded() -> None:
    """A record as it is, with the partition that its answers belong to, both ways."""
    scene = Scene()
    scene.serve("near")
    scene.ask("q")
    (answer,) = scene.answer(7)
    assert isinstance(answer, HandOver)
    assert (answer.topic, answer.partition, answer.batch.query_ids) == (topics.MODEL_PREDICTIONS, 0, ("q",))


def test_a_canary_of_an_inline_model_answers_as_its_neighbour_does() -> None:
    """What it is routed completes its query; it learns that it is handed over to when it is there."""
    scene = Scene()
    scene.serve("near")
    canary = scene.beside("2", 1.0)
    scene.ask("q", offset=5)
    take = canary.take(NOW)
    answers = canary.answer(take, Predicted((Outcome.OK,), np.array([9])), NOW, MS)
    answer, completes = prediction(scene.kernel.on_answers(answers, NOW))
    assert (answer.answer, answer.outputs[0].version) == (9, "2")
    assert completes == (Position(topics.QUERIES, 0, 5),)


def test_a_shadow_of_an_inline_model_is_written_to_its_own_topic() -> None:
    """Whoever compares it reads that, whatever runs where."""
    scene = Scene()
    scene.serve("near")
    shadow = scene.beside("2", 0.0)
    scene.ask("q")
    (emit,) = shadow.answer(shadow.take(NOW), Predicted((Outcome.OK,), np.array([9])), NOW, MS)
    assert isinstance(emit, Emit)
    assert (emit.topic, emit.completes) == (topics.SHADOWS, ())
    assert CODEC.decode(ModelPredictions, emit.value).query_ids == ("q",)
    assert prediction(scene.predict(7))[0].answer == 7


def test_texts_that_no_record_could_hold_have_failed() -> None:
    """A label with half a surrogate cannot be answered; its neighbour is."""
    scene = Scene()
    scene.serve("near")
    scene.ask("broken", offset=1)
    scene.ask("fine", offset=2)
    take = scene.model.take(NOW)
    answers = scene.model.answer(take, Predicted((Outcome.OK,) * 2, ("\ud800", "cat")), NOW, MS)
    effects = scene.kernel.on_answers(answers, NOW)
    found = {p.query_id: (p.answer, p.reason) for p in (CODEC.decode(Prediction, e.value) for e in effects)}  # type: ignore[union-attr]
    assert found == {"broken": (-1, "model_failed"), "fine": ("cat", None)}


def test_an_input_that_fits_no_model_record_is_refused_inline_as_anywhere() -> None:
    """A query filled to the last byte is answered for, and its model is not asked."""
    scene = Scene()
    scene.serve("near")
    room = MAX_BYTES - len(CODEC.encode(Query("q", "digits", "x" * 300_000))) + 300_000
    answer, _ = prediction(scene.read(topics.QUERIES, CODEC.encode(Query("q", "digits", "x" * room))))
    assert (answer.status, answer.reason, scene.kernel.held) == (Status.DEFAULT, "invalid_input", 0)
