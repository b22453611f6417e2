"""Polls of predictions and feedback of every kind, and what an operator makes of them, to compare two operators by."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from policies import registry
from schemas import topics
from schemas.records import (
    Application,
    Decision,
    Feedback,
    LabelSet,
    Model,
    ModelOutput,
    ModelPredictions,
    Observations,
    Outcome,
    PlaceFeedback,
    Prediction,
    Status,
    Step,
    Tensor,
)
from streams.columns import join_forms
from streams.operators.contract import Batch, DeadLetter, Emit, EmitBatch, Record, Skip, Span
from streams.runtime.kafka.fast.record_batches import unpack as unpack_batch
from tests.loops import CODEC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from streams.operators.contract import Effects

batches = pytest.importorskip("streams.columns.batches", reason="Skysail has been installed without a compiler")

BEGIN_US = 1_700_000_000_000_000
MODELS = ("a", "bé", "c")
APPLICATIONS = (
    Application("digits", MODELS, "exp3", window_s=20.0),
    Application("given", MODELS, "thompson", loss="given", window_s=5.0, default_loss=0.5),
    Application("numbers", MODELS, "ucb1", loss="absolute", window_s=20.0),
    Application("squares", MODELS, "ucb1", loss="squared", window_s=20.0, span=3.0),
    Application("users", MODELS, "epsilon_greedy", window_s=10.0, per_context=True, forget_s=60.0),
    Application("votes", MODELS, "class_vote", window_s=20.0, default_loss=1.0),
    Application("heard", MODELS, "class_vote", loss="given", window_s=20.0),
    Application("all", MODELS, "exp4", window_s=20.0),
    Application("means", MODELS, "exp4", loss="absolute", window_s=20.0, combine="mean"),
    Application("told", MODELS, "exp4", loss="given", window_s=20.0, per_context=True),
    Application("priced", MODELS, "exp4", loss='{"cost":{"*":{"one":3,"*":1}},"unit":"EUR"}', window_s=20.0),
    Application("weighed", MODELS, "exp3", window_s=20.0, max_weight=4.0),
    Application("limited", MODELS, "exp3", window_s=20.0, default_loss=0.5, lessons_per_teacher=2, teachers=("web",)),
    Application("limits", MODELS, "exp3", loss="given", window_s=20.0, default_loss=0.5, lessons_per_context=2),
)
POLICIES = {one.name: registry.spec(registry.policy_of(one)) for one in APPLICATIONS} | {"nobody": "exp3(eta=0.1)"}
ANSWERS = (1, 2, -7, 2**40, "one", "zwei é", 0.25, None)
NUMBERS = (1, 2, -7, 0.25, 3.5, 2**40)
COMMON = (
    "digits",
    "users",
    "given",
    "numbers",
    "squares",
    "all",
    "means",
    "told",
    "votes",
    "heard",
    "limited",
    "limits",
)
TOGETHER = frozenset({"all", "means", "told", "votes", "heard"})
SHARES = ((0.25, 0.25, 0.5), (0.1, 0.8, 0.1))


def unpacked(batch: Batch) -> list[Record]:
    """Return the wanted records of a batch."""
    found, _ = unpack_batch(batch.data, batch.topic, batch.partition, batch.offset)
    return [record for record in found if record.offset < batch.end]


def batch_of(rows: list[Record]) -> bytes:
    """Return a record batch, as a broker has it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 26)
    for index, row in enumerate(rows):
        assert builder.append(index, row.timestamp_us // 1000, row.key, row.value, [*row.headers]) is not None
    data = bytearray(builder.build())
    data[:8] = rows[0].offset.to_bytes(8, "big")
    return bytes(data)


@dataclass
class World:
    """Makes polls; the offsets of each partition go on from one poll to the next.

    Attributes:
        random: what is drawn with.
        odd: share of the records that are not common.
        ahead: share of the polls in which feedback comes before its predictions.
        now_us: the time.
    """

    random: Random
    odd: float
    ahead: float = 0.0
    now_us: int = BEGIN_US
    ids: int = 0
    offsets: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    asked: defaultdict[int, list[Prediction]] = field(default_factory=lambda: defaultdict(list))  # by partition
    kept: defaultdict[int, list[Prediction]] = field(default_factory=lambda: defaultdict(list))  # that come later

    def is_odd(self) -> bool:
        """Draw whether something is not common."""
        return self.random.random() < self.odd

    def record(self, topic: str, partition: int, value: bytes | None, key: bytes | None = None) -> Record:
        """Return the next record of a partition."""
        offset = self.offsets[topic, partition]
        self.offsets[topic, partition] += 1
        stamp_us = (self.now_us - self.random.choice((0, 0, 1000, 7_000_000))) // 1000 * 1000
        if self.is_odd() and self.random.random() < 0.02:
            stamp_us = self.random.choice((-5_000, 0, 2**63 // 1_000 * 1_000 - 8_000))
        headers = (("trace", b"x"),) if self.is_odd() and self.random.random() < 0.3 else ()
        return Record(topic, partition, offset, stamp_us, key, value, headers)

    def configuration(self) -> list[Record]:
        """Return the applications."""
        labels = [one for answer in ANSWERS[:6] for one in (answer, _other(answer, self.random))]  # not 5
        classes = tuple([str(label) for label in labels])
        models = [
            Model(name, "1", "sklearn", "path", "digest", "label", "float64", (2,), classes, partitions=1)
            for name in MODELS
        ]
        named = [(topics.APPLICATIONS, one.name, one) for one in APPLICATIONS]
        named += [(topics.MODELS, one.name, one) for one in models]
        return [
            Record(topic, 0, at, self.now_us, name.encode(), CODEC.encode(one))
            for at, (topic, name, one) in enumerate(named)
        ]

    def prediction(self) -> Prediction:
        """Return a prediction, mostly of one model that has answered with a label."""
        draw, odd = self.random, self.is_odd()
        self.ids += 1
        query_id = draw.choice(("", "x" * 130, "é" * 40, "again")) if odd and draw.random() < 0.3 else f"id-{self.ids}"
        name = draw.choice([*POLICIES]) if odd else draw.choice(COMMON)
        context = draw.choice(("ann", "bö", "c" * 70)) if name in {"users", "told", "limits"} or odd else None
        usual = NUMBERS if name in {"numbers", "squares", "means", "heard"} else ANSWERS[:6]
        arm, answer = draw.randrange(3), draw.choice(ANSWERS if odd else usual)
        state = name if context is None else f"{name}/{context}"
        decision = Decision((arm,), draw.randrange(3), state, POLICIES[name], MODELS, draw.choice(SHARES))
        timed = ({}, {"waited_us": 70, "predict_us": 2_000_000, "batch_rows": 64})[len(query_id) % 2]
        outputs: tuple[ModelOutput, ...] = (ModelOutput(MODELS[arm], "1", Outcome.OK, answer, **timed),)
        if name in TOGETHER:
            decision = decision._replace(chosen=(0, 1, 2), propensities=(1.0, 1.0, 1.0))
            answers = [draw.choice((answer, draw.choice(ANSWERS if odd else _like(answer, usual)))) for _ in MODELS]
            outputs = tuple(
                [
                    ModelOutput(model, "1", Outcome.OK, said, **timed)
                    for model, said in zip(MODELS, answers, strict=True)
                ]
            )
        times = (self.now_us, self.now_us, self.now_us + 100_000, self.now_us + draw.choice((0, 5, 900)))
        status = draw.choice((Status.COMPLETE, Status.PARTIAL))
        token = draw.choice(("", "token"))
        made = Prediction(query_id, name, context, decision, status, None, answer, 1.0, outputs, *times, token)
        return self.changed(made) if odd else made

    def changed(self, made: Prediction) -> Prediction:
        """Return a prediction that is not of the common form, perhaps."""
        draw, decision, output = self.random, made.decision, made.outputs[0]
        assert decision is not None
        scores = Tensor.of(np.array([0.5, 0.25, 0.25]))
        answers = decision.chosen[0]
        changes: list[dict[str, Any]] = [
            {},
            {"decision": None},
            {"outputs": (output._replace(scores=scores),)},
            {"outputs": (output, ModelOutput("c", "2", Outcome.OK, 2))},
            {"outputs": made.outputs[:1]},
            {"outputs": made.outputs[::-1]},
            {"outputs": (*made.outputs, output._replace(answer=7))},
            {"outputs": (*made.outputs[1:], output._replace(outcome=Outcome.MISSING, answer=None))},
            {"outputs": (*made.outputs[1:], output._replace(outcome=Outcome.OVERLOADED, answer=None))},
            {"outputs": (*made.outputs[1:], output._replace(scores=scores))},
            {"outputs": made.outputs * 30},
            {"outputs": (output._replace(outcome=Outcome.MISSING, answer=None),), "answer": None},
            {"outputs": (), "reason": "expired"},
            {"outputs": (output._replace(answer=9),)},
            {"outputs": (output._replace(model="else"),)},
            {"outputs": (output._replace(reconstructed=True),)},
            {"answer": scores, "outputs": (output._replace(answer=scores),)},
            {"decision": decision._replace(features=(1.0, 2.0))},
            {"decision": decision._replace(apprentice="ucb1(exploration=2.0)")},
            {"decision": decision._replace(stable=(1.0, 0.5, 1.0))},
            {"decision": decision._replace(chosen=(answers, (answers + 1) % 3))},
            {"decision": decision._replace(chosen=(0, 1, 2))},
            {"decision": decision._replace(chosen=(2, 1, 0))},
            {"decision": decision._replace(chosen=(0, 1, 1))},
            {"decision": decision._replace(arms=("a", "a", "bé"))},
            {"decision": decision._replace(policy="no policy")},
            {"steps": (Step("hedge", (1,), 5, 0.5, "asked"),)},
            {"first": (0.5, 0.5)},
            {"imputed": ("source",)},
            {"label_set": LabelSet((1,), False, 0.9, 0.1, 0.5, (1.0,))},
            {"message": "words"},
            {"answered_us": draw.choice((-1, 2**62, 2**63 - 1, self.now_us - 200_000_000))},
            {"confidence": 0.5},
        ]
        return made._replace(**draw.choice(changes))

    def predictions(self, partition: int, count: int) -> list[Record]:
        """Return records of predictions, some of them spoilt, some of them late: their feedback comes first."""
        found, asked, draw = [], self.asked[partition], self.random
        for _ in range(count):
            one = self.prediction()
            if self.is_odd():
                one = draw.choice((one, one, *self.kept[partition], *asked[-3:]))
            asked.append(one)
            if self.is_odd() and draw.random() < 0.3:
                self.kept[partition].append(one)
                continue
            value: bytes | None = CODEC.encode(one)
            if self.is_odd() and draw.random() < 0.2:
                value = self.spoilt(value)
            found.append(self.record(topics.PREDICTIONS, partition, value, one.query_id.encode()))
        return found

    def spoilt(self, value: bytes | None) -> bytes | None:
        """Return other bytes."""
        assert value is not None
        draw = self.random
        at = draw.randrange(len(value))
        return draw.choice(
            (
                None,
                b"",
                value[:at],
                value + b"\0",
                value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :],
            )
        )

    def told(self, partition: int, count: int) -> list[Record]:
        """Return records of feedback, mostly on what has been predicted, in another order."""
        draw, found, asked = self.random, [], self.asked[partition]
        recent = asked[-count:]
        draw.shuffle(recent)
        for one in recent:
            said = draw.choice((*asked, *self.asked[1 - partition])) if self.is_odd() else one
            odd = self.is_odd()
            answer = 5 if said.answer is None or isinstance(said.answer, Tensor) else said.answer
            label = draw.choice(ANSWERS) if odd else draw.choice((answer, _other(answer, draw)))
            loss = None
            if odd or said.application in {"given", "told", "heard", "limits"}:
                loss = draw.choice((0.0, 0.5, 1.0, -0.0, None, 1.5) if odd else (0.0, 0.5, 1.0))
            label = None if loss is not None and not (odd and draw.random() < 0.2) else label
            its = draw.choice(("", said.application, *(("digits", "nobody") if odd else ())))
            who = its, draw.choice(("", "web", "é" * (200 if odd else 60)))
            places = (PlaceFeedback(draw.choice((0, 1)), "", label, loss),) if odd and draw.random() < 0.1 else ()
            feedback = Feedback(said.query_id, label, loss, self.now_us, None, *who, places)
            value: bytes | None = CODEC.encode(feedback)
            if odd and draw.random() < 0.1:
                value = self.spoilt(value)
            found.append(self.record(topics.FEEDBACK, partition, value, said.query_id.encode()))
        return found

    def shadow(self, partition: int) -> list[Record]:
        """Return an output beside an answer."""
        query_id = self.random.choice(self.asked[partition]).query_id
        batch = ModelPredictions(
            "a", "2", "w", (query_id,), (Outcome.OK,), Tensor.of(np.array([1])), None, (1,), 1, 1, 1, 0
        )
        return [self.record(topics.SHADOWS, partition, CODEC.encode(batch))]

    def observed(self) -> list[Record]:
        """Return observations of some that have been asked, and of some that will be."""
        ids = [one.query_id for one in self.asked[0][-5:]] + [f"id-{self.ids + ahead}" for ahead in range(1, 30, 2)]
        one = join_forms.example(1, None).observation
        seen = Observations(tuple([one._replace(query_id=query_id) for query_id in ids]))
        return [self.record(topics.OBSERVATIONS, 0, CODEC.encode(seen))]

    def canary(self) -> list[Record]:
        """Return a model that runs in two versions from now on, or does no more."""
        shares = self.random.choice(({}, {"2": 0.5}))
        model = Model("a", "1", "sklearn", "path", "digest", "label", "float64", (2,), (), shares)
        return [self.record(topics.MODELS, 0, CODEC.encode(model), b"a")]

    def poll(self, most: int) -> list[list[Record]]:
        """Return some runs of records."""
        runs = []
        for _ in range(self.random.choice((1, 2, 3))):
            partition, count = self.random.randrange(2), self.random.randrange(1, most)
            if not self.asked[partition] or self.random.random() < 0.6:
                runs.append(self.predictions(partition, count))
            if self.is_odd() and self.random.random() < 0.2:
                runs.append(self.canary() if self.random.random() < 0.5 else self.shadow(partition))
            if self.random.random() < 0.7:
                runs.append(self.told(partition, count))
        if self.ahead and self.random.random() < self.ahead:
            runs.reverse()
        return [run for run in runs if run]

    def fetched(self, runs: list[list[Record]]) -> list[Record | Batch]:
        """Return the same as batches, some of them in slices, and some as records."""
        found: list[Record | Batch] = []
        for run in runs:
            cuts = sorted(
                {0, len(run), *(self.random.randrange(len(run) + 1) for _ in range(self.random.choice((0, 1))))}
            )
            for begin, end in pairwise(cuts):
                part = run[begin:end]
                if self.is_odd() and self.random.random() < 0.3:
                    found += part
                else:
                    found += self.slices(part)
        return found

    def slices(self, part: list[Record]) -> list[Batch]:
        """Return a batch, or slices of it."""
        data, first, end = batch_of(part), part[0].offset, part[-1].offset + 1
        cut = self.random.randrange(first, end + 1) if self.random.random() < 0.3 else end
        topic, partition = part[0].topic, part[0].partition
        return [
            Batch(topic, partition, begin, behind, data)
            for begin, behind in ((first, cut), (cut, end))
            if begin < behind
        ]


def _like(answer: float | str | None, answers: Sequence[float | str]) -> list[float | str]:
    """Return those answers that are of the kind of one: numbers or texts; of whole numbers, whole ones."""
    return [each for each in answers if each.__class__ is answer.__class__]


def _other(answer: float | str, draw: Random) -> int | float | str:
    """Return another label of the kind of an answer, or another number."""
    if isinstance(answer, float):
        return draw.choice((answer + 1, 2, 0.125))
    return answer * 2 if isinstance(answer, int) else answer + "!"


def outcome(effects: Effects) -> dict[str, Any]:
    """Return what effects come to, however they are put together."""
    written: defaultdict[tuple[str, int], list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    completes: set[tuple[str, int, int]] = set()
    others: list[Any] = []
    for effect in effects:
        if isinstance(effect, EmitBatch):
            rows = batches.records(effect.data)
            assert len(rows) == effect.count
            assert [row[0] for row in rows] == [*range(effect.count)]
            written[effect.topic, effect.partition] += [(key, value) for _, _, key, value, _ in rows]
            completes |= _positions(effect.completes)
        elif isinstance(effect, Emit):
            written[effect.topic, effect.partition].append((effect.key, effect.value))
            completes |= {tuple(position) for position in effect.completes}
        elif isinstance(effect, Skip | DeadLetter):
            others.append(effect)
        else:
            raise TypeError(effect)
    return {"written": dict(written), "completes": completes, "others": others}


def _positions(spans: tuple[Span, ...]) -> set[tuple[str, int, int]]:
    found = {(span.topic, span.partition, offset) for span in spans for offset in range(span.begin, span.end)}
    assert len(found) == sum(span.end - span.begin for span in spans)
    return found
