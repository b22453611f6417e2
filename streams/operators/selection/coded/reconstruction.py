"""Coded inference in the role: groups form as rows are dispatched; what is decoded takes the place of what is missing.

rows ─ask─▶ each to the next partition ─▶ models.<m>.queries
        └─▶ groups ─▶ sum ─flush─▶ models.<parity>.queries ─▶ its output ─┐
outputs of m ─▶ groups ◀──────────────────────────────────────────────────┘
                  └─▶ the missing one, marked `reconstructed` ─▶ combiner
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.errors import SchemaError
from schemas.records import ModelOutput, ModelQueries, Outcome, Tensor
from streams.operators.contract import Emit
from streams.operators.selection.coded.code import CodedRow, code_of, numbers_of
from streams.operators.selection.coded.groups import CodedSource, Groups
from streams.operators.selection.pending import FollowUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.codec import Codec
    from schemas.records import Application, Input, Model, ModelPredictions
    from streams.operators.contract import Effects
    from streams.operators.selection.coded.code import Code, ParityRow, Reconstructed
    from streams.operators.selection.combiner import Combiner
    from streams.operators.selection.dispatch import Dispatcher, Row
    from streams.operators.selection.pending import Pending
    from streams.operators.statistics import Counters

# They can still be in time by another's answer; what failed on its input would fail again.
_NOT_IN_TIME = frozenset((Outcome.EXPIRED, Outcome.OVERLOADED))


class Reconstruction:
    """Codes the rows of applications that name a parity model.

    Args:
        codec: of the records.
        models: that are deployed, by name, as they change.
        dispatcher: that asks the models.
        combiner: that holds the queries.
        counters: of the role.
    """

    __slots__ = (
        "_asked",
        "_codec",
        "_combiner",
        "_counters",
        "_dispatcher",
        "_groups",
        "_has_texts",
        "_models",
        "_turns",
    )

    def __init__(
        self, codec: Codec, models: Mapping[str, Model], dispatcher: Dispatcher, combiner: Combiner, counters: Counters
    ) -> None:
        self._codec = codec
        self._models = models
        self._dispatcher = dispatcher
        self._combiner = combiner
        self._counters = counters
        self._groups = Groups()
        self._asked: list[ParityRow] = []
        self._turns: Counter[str] = Counter()  # by topic: rows sent so far
        self._has_texts: dict[str, bool] = {}  # by model: whether its labels are texts

    @property
    def waits(self) -> bool:
        """Whether there are groups."""
        return len(self._groups) > 0

    @property
    def is_used(self) -> bool:
        """Whether rows have been coded."""
        return bool(self._turns)

    def ask(
        self,
        application: Application,
        asked: tuple[str, ...],
        rows: Sequence[Row],
        versions: Mapping[str, str],
        now_us: int,
    ) -> None:
        """Ask the models behind these topics as the dispatcher does; rows of the coded one form groups."""
        code = self._code(application.parity)
        topic = topics.model_queries(code.model) if code is not None else ""
        if code is None or topic not in asked or code.model in versions:
            self._dispatcher.add(asked, rows, versions)
            return
        others = tuple(name for name in asked if name != topic)
        if others:
            self._dispatcher.add(others, rows, versions)
        for row in rows:
            place = self._next(topic, code.partitions)
            self._dispatcher.add((topic,), (row,), versions, place=place)
            self._join(code, row, now_us)

    def _code(self, parity: str) -> Code | None:
        model = self._models.get(parity)
        return None if model is None else code_of(model, self._models)

    def _next(self, topic: str, partitions: int) -> int:
        """Return the partition whose turn it is: rows of one group, which follow each other, go to different ones."""
        self._turns[topic] += 1
        return self._turns[topic] % partitions

    def _join(self, code: Code, row: Row, now_us: int) -> None:
        query, values = row.query, _values(code, row.input)
        if values is None or not self._is_of_version(code, query) or not self._takes(code, query):
            self._counters["uncoded_total", "model", code.model] += 1
            return
        coded = CodedRow(query.partition, query.row_id, now_us, row.due_us, query.until_us)
        full = self._groups.join(code, coded, values)
        if full is not None:
            self._asked.append(full)

    def _takes(self, code: Code, query: Pending) -> bool:
        return self._groups.takes(code.model, query.partition, query.row_id)

    def _is_of_version(self, code: Code, query: Pending) -> bool:
        """Tell whether the version that serves answers a query, which is the one that the parity model belongs to."""
        return query.version is None and not query.beside(self._models[code.model].shares)

    def flush(self, effects: Effects) -> None:
        """Append the records of the groups that have filled."""
        asked, self._asked = self._asked, []
        for row in asked:
            topic = topics.model_queries(row.code.parity)
            column = Tensor.of(row.total[np.newaxis])
            try:
                value = self._codec.encode(ModelQueries((row.row_id,), row.partition, (row.due_us,), column))
            except SchemaError:  # a sum may be larger than an input: float32 of uint8
                self._counters["uncoded_total", "model", row.code.model] += row.code.k
                continue
            self._counters["coded_total", "model", row.code.model] += row.code.k
            place = self._next(topic, self._models[row.code.parity].partitions)
            effects.append(Emit(topic, place, None, value))

    def is_parity(self, partition: int, batch: ModelPredictions) -> bool:
        """Tell whether groups wait for a batch of a parity model."""
        return any(self._groups.is_parity(batch.model, partition, row_id) for row_id in batch.query_ids)

    def on_outputs(
        self, partition: int, batch: ModelPredictions, outputs: Sequence[ModelOutput], now_us: int, effects: Effects
    ) -> None:
        """Take a batch of a coded or a parity model; append the answers that are complete by what it lets decode."""
        groups, found = self._groups, []
        source = CodedSource(batch.model, batch.version, partition)
        for row_id, output in zip(batch.query_ids, outputs, strict=True):
            numbers = numbers_of(output)
            if groups.is_parity(batch.model, partition, row_id):
                found.append(groups.on_parity(source, row_id, numbers, now_us))
            elif output.outcome in _NOT_IN_TIME:
                found.append(groups.on_expired(batch.model, partition, row_id))
            else:
                found.append(groups.on_output(source, row_id, numbers, now_us))
                self._has_texts[batch.model] = isinstance(output.answer, str)
        self._answer(filter(None, found), now_us, effects)

    def on_timer(self, now_us: int, effects: Effects) -> None:
        """Append the answers of what is decoded now."""
        self._answer(self._groups.on_timer(now_us), now_us, effects)

    def next_due(self) -> int | None:
        """Return when something may be decoded (us)."""
        return self._groups.next_due()

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget groups with rows of these partitions."""
        self._asked.clear()
        self._groups.drop(partitions)

    def statistics(self) -> dict[str, float]:
        """Return how many groups there are, what they take, and how many rows were in some that did not fill."""
        groups = self._groups
        return {
            "coding_groups": float(len(groups)),
            "coding_bytes": float(groups.bytes),
            "coding_unfilled_total": float(groups.unfilled),
        }

    def _answer(self, found: Iterable[Reconstructed], now_us: int, effects: Effects) -> None:
        for one in found:
            model = one.code.model
            query = self._combiner.find(one.partition, one.row_id)
            if query is None or model not in query.models or model in query.outputs:
                continue
            self._counters["reconstructed_total", "application", query.application_name, "model", model] += 1
            query.outputs[model] = self._output(one)
            follow_up = query.follow_up = query.follow_up or FollowUp()
            follow_up.right = one.code.right
            if query.is_due and follow_up.asker is not None:
                self._combiner.ready.append(query)
            elif query.is_due:
                effects.append(self._combiner.answer(query, now_us))

    def _output(self, one: Reconstructed) -> ModelOutput:
        """Return what was decoded as an output of the model, which itself is missing."""
        model, version = one.code[:2]
        if not one.output.shape:
            return ModelOutput(model, version, Outcome.MISSING, float(one.output), None, reconstructed=True)
        best, classes = int(one.output.argmax()), self._models[model].classes if model in self._models else ()
        label = classes[best] if best < len(classes) else str(best)
        answer = label if self._has_texts.get(model, False) else int(label)
        return ModelOutput(model, version, Outcome.MISSING, answer, Tensor.of(one.output), reconstructed=True)


def _values(code: Code, given: Input) -> NDArray[np.generic] | None:
    """Return an input as numbers that can be added; None if it is of another kind or shape."""
    return given.numpy() if isinstance(given, Tensor) and given.shape == code.shape else None
