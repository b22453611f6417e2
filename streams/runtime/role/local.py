"""Routes records inside one process: what is written to a topic whose consumer runs here does not go over Kafka.

    records ─▶ asker ─▶ effects ─┬─ Emit to a model's topic ─▶ its kernel, as a record ─▶ Predict
                  ▲              └─ everything else ─▶ performed                             │
                  └── Emit to model-predictions, as a record ◀── its kernel ◀── on_predicted ┘

Records stay unencoded between them (`LocalCodec`). For models whose rows cost so little that two legs over Kafka are
absurd. Nothing is weaker for it: a query is complete when its prediction is acknowledged, so what is in memory when the
process dies is read, asked and answered again.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from schemas import topics
from schemas.codec import Codec
from schemas.records import DTYPES, ModelPredictions, ModelQueries, Outcome, Tensor
from streams.operators.contract import BEHIND, NONE_UNREAD, Emit, Loaded, Operator, Predict, Ran, Record, Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import PolicyState
    from streams.operators.contract import Effect, Effects, Needs, StateKey, Unread

R = TypeVar("R")

# A quarter of what a record may hold, as kernels fill them.
_SMALL_BYTES = 131_072
# Queries whose answers broke the asker, the last ones: each batch that does brings at most some hundreds.
DISTRUSTED = 10_000
# A poll of what is followed brings nothing else.
_FOLLOWED = frozenset({topics.APPLICATIONS, topics.MODELS, topics.FEATURES})


class Carried(bytes):
    """Stands for the value of a record that has not left its process."""

    record: object


class LocalCodec(Codec):
    """Carries records about models, and has all others encoded and decoded.

        encode ─▶ Carried, an empty value with the record ─▶ `Local` ─┬─ stays here ─▶ decode: the same record
                                                                      └─ leaves ─▶ written: encoded after all

    Only what is sure to fit into a record is carried; all else is encoded, and refused, as anywhere. It pays where
    few queries ask several models: a question in bytes, both sides together, would cost 8.5 us in a poll of one row,
    1.2 us a row in one of eight, and 0.4 in one of a hundred (rows of 64 numbers, CPython 3.11).

    Args:
        codec: of the deployment.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.max_bytes = codec.max_bytes

    def encode(self, record: object) -> bytes:
        """Return a record's bytes, or what stands for them."""
        if _is_carried(record):
            value = Carried()
            value.record = record
            return value
        return self._codec.encode(record)

    def decode(self, record: type[R], value: bytes | None) -> R:
        """Return the record in `value`, or that it stands for."""
        if value.__class__ is Carried and value.record.__class__ is record:
            return value.record
        return self._codec.decode(record, value)

    def written(self, emit: Emit) -> Emit:
        """Return a record as it is written where it leaves the process."""
        if emit.value.__class__ is not Carried:
            return emit
        return emit._replace(value=self._codec.encode(emit.value.record))


def _is_carried(record: object) -> bool:
    """Tell whether a record may be carried: numbers fit for sure, texts and scores have to be tried."""
    if record.__class__ is ModelQueries:
        inputs = record.inputs
        return inputs.__class__ is Tensor and len(inputs.data) <= _SMALL_BYTES
    if record.__class__ is ModelPredictions:
        answers = record.answers
        return record.scores is None and answers.__class__ is Tensor and answers.dtype in DTYPES
    return False


class Local(Operator):
    """An operator, and the kernels of models that answer it in the same process.

    Args:
        asker: asks models: the selection kernel.
        models: their kernels, by model.
        codec: that they all use.
        writes_behind: whether what models answer is also written to `model-predictions`, for readers of the log; what
            selection reads of it is skipped.
        places: that a row which waits for a model takes in the role, whose bound is for all that it has in hand: so a
            model whose queue is full stops the role, and queries that wait for others do not.
    """

    def __init__(
        self,
        asker: Operator,
        models: Mapping[str, Operator],
        codec: LocalCodec,
        places: float = 1.0,
        *,
        writes_behind: bool = False,
    ) -> None:
        self._asker = asker
        self._writes_behind = writes_behind
        self._places = places
        self._models = models
        self._codec = codec
        self._by_topic = {topics.model_queries(model): kernel for model, kernel in models.items()}
        self._number = count().__next__  # each kernel counts its own batches
        self._running: dict[int, tuple[Operator, int]] = {}
        self._offsets = count()
        self._distrusted: dict[str, None] = {}
        self._wanted: Effects = []  # by models: performed even if the asker fails over what they answer

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Let the asker take a poll's records; what it asks of models here is queued, and they hear of versions."""
        effects: Effects = []
        if records and records[0].topic in _FOLLOWED:
            about = [record for record in records if record.topic == topics.MODELS]
            for kernel in self._models.values():
                effects += self._of_model(kernel, kernel.on_records(about, now_us), now_us)
        effects += self._of_asker(self._asker.on_records(records, now_us), now_us)
        return self._with_wanted(effects)

    def needs(self) -> Needs:
        """Be called when one of them is due; the fullest one counts."""
        asker = self._asker.needs()
        needs = [asker, *(kernel.needs() for kernel in self._models.values())]
        due_us = min((each.deadline_us for each in needs if each.deadline_us is not None), default=None)
        held = max(each.held for each in needs[1:])
        return asker._replace(
            deadline_us=0 if self._wanted else due_us, held=max(asker.held, math.ceil(held * self._places))
        )

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Do what is due."""
        effects: Effects = []
        for kernel in self._models.values():
            due_us = kernel.needs().deadline_us
            if due_us is not None and due_us <= now_us:
                effects += self._of_model(kernel, kernel.on_timer(now_us), now_us)
        effects += self._of_asker(self._asker.on_timer(now_us, unread), now_us)
        return self._with_wanted(effects)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states."""
        return self._with_wanted(self._of_asker(self._asker.on_states(states, now_us), now_us))

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Give a batch's results to the kernel that asked for it, and what that answers to the asker."""
        kernel, number = self._running.pop(batch_id)
        return self._with_wanted(self._of_model(kernel, kernel.on_predicted(number, ran, now_us), now_us))

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Tell the model's kernel."""
        kernel = self._models[loaded.model]
        return self._with_wanted(self._of_model(kernel, kernel.on_loaded(loaded, now_us), now_us))

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Begin these partitions; answers to what was asked before are late, and recognised as such."""
        self._asker.on_partitions(starts)

    def statistics(self) -> Mapping[str, float]:
        """Return the figures of all."""
        return {
            name: value for part in (*self._models.values(), self._asker) for name, value in part.statistics().items()
        }

    def _of_asker(self, effects: Effects, now_us: int) -> Effects:
        """Return what is to be performed; models get what they are asked, and the asker what they refuse."""
        asked: dict[str, list[Record]] = {}
        kept: Effects = []
        for effect in effects:
            if type(effect) is Emit and effect.topic in self._by_topic:
                asked.setdefault(effect.topic, []).append(self._record(effect, now_us))
            elif type(effect) is Emit:
                kept.append(self._codec.written(effect))
            else:
                kept.append(effect)
        for topic, records in asked.items():
            kernel = self._by_topic[topic]
            kept += self._of_model(kernel, kernel.on_records(records, now_us), now_us)
        return kept

    def _of_model(self, kernel: Operator, effects: Effects, now_us: int) -> Effects:
        """Give the asker what a model's kernel answers, and return what that leads to; the rest is wanted."""
        answers: list[Record] = []
        for effect in effects:
            if type(effect) is Emit and effect.topic == topics.MODEL_PREDICTIONS:
                answers.append(self._record(effect, now_us))
                if self._writes_behind:
                    self._wanted.append(self._codec.written(effect)._replace(completes=(), headers=(BEHIND,)))
            elif type(effect) is Emit:
                self._wanted.append(self._codec.written(effect))
            elif isinstance(effect, Predict):
                self._wanted.append(self._numbered(kernel, effect))
            else:
                self._wanted.append(effect)
        return self._answered(answers, now_us) if answers else []

    def _with_wanted(self, effects: Effects) -> Effects:
        """Return effects, and those that models want."""
        if not self._wanted:
            return effects
        wanted, self._wanted = self._wanted, []
        return wanted + effects

    def _answered(self, answers: list[Record], now_us: int) -> Effects:
        """Give answers to the asker; when their queries are asked again, those that broke it have failed."""
        answers = [self._checked(answer) for answer in answers] if self._distrusted else answers
        try:
            effects = self._asker.on_records(answers, now_us)
        except Exception:
            self._distrust(answers)
            raise
        return self._of_asker([effect for effect in effects if not _is_of(effect, answers)], now_us)

    def _numbered(self, kernel: Operator, predict: Predict) -> Predict:
        """Return a batch under a number that no other kernel here gives."""
        number = self._number()
        self._running[number] = kernel, predict.batch_id
        return predict._replace(batch_id=number)

    def _record(self, emit: Emit, now_us: int) -> Record:
        """Return as read what would be written; it completes nothing, as it was never consumed."""
        return Record(emit.topic, emit.partition, next(self._offsets), now_us, emit.key, emit.value, emit.headers)

    def _distrust(self, answers: Sequence[Record]) -> None:
        for answer in answers:
            self._distrusted |= dict.fromkeys(self._codec.decode(ModelPredictions, answer.value).query_ids)
        for query_id in [*self._distrusted][: max(0, len(self._distrusted) - DISTRUSTED)]:
            del self._distrusted[query_id]

    def _checked(self, answer: Record) -> Record:
        """Return an answer with the rows that are not trusted marked as failed."""
        batch = self._codec.decode(ModelPredictions, answer.value)
        if self._distrusted.keys().isdisjoint(batch.query_ids):
            return answer
        outcomes = tuple(
            Outcome.FAILED if query_id in self._distrusted else outcome
            for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True)
        )
        return answer._replace(value=self._codec.encode(batch._replace(outcomes=outcomes)))


def _is_of(effect: Effect, answers: Sequence[Record]) -> bool:
    """Tell whether an effect only completes answers, which nobody counts."""
    return isinstance(effect, Skip) and {*effect.completes} <= {answer.position for answer in answers}
