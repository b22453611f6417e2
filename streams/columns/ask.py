"""Queries to models in workers, over columns: asked together, and answered by the batches that workers answer.

    rows of a poll ─▶ `ModelQueries` ─▶ the workers ─▶ `ModelPredictions` ─▶ EmitBatch, Span
        └────────────▶ Waiting ───────────────────────────┘
                          └─ due, or needed by the kernel: it has them from then on

Columns hold what the kernel would hold of such a query, and no more. They answer a worker batch whose rows all wait
here, and have one number or text each. For all else they give the rows back first (`PlainQueries.resume`), and the
kernel goes on as if it had held them all the time.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.records import ModelPredictions, ModelQueries, Outcome, Tensor
from schemas.wire import ITEM_BYTES, write_long
from streams.columns import asking as compiled
from streams.columns.answer_columns import KINDS, AnswerColumn, said
from streams.columns.pieces import ArmPieces, Uncut, answer_form, decided
from streams.columns.plain import WaitingQuery
from streams.operators.contract import BEHIND, Emit, EmitBatch, Position, Skip, Span
from streams.operators.selection.dispatch import RECORD_BYTES, ROW_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from schemas.codec import Codec
    from streams.columns.asking import Found, Waiting
    from streams.columns.pieces import AnswerForm
    from streams.columns.plain import PlainQueries
    from streams.operators.configuration import Deployed
    from streams.operators.contract import Effects, Record
    from streams.operators.selection.pending import Quota
    from streams.operators.selection.state_view import Arms

Pieces = tuple[bytes, tuple[bytes, ...], bytes]  # name of the application, form of an answer, decision
# Larger inputs are not copied into columns: a record holds few of them.
_MOST_WIDTH: Final = 1 << 16
# Of a question's row beside its input: each row of columns fits into a record.
_BESIDE: Final = 2_048


class Decides(NamedTuple):
    """What decides the queries of a context.

    Attributes:
        arms: in its state.
        decisions: as they are written, by arm and kind of answer.
    """

    arms: Arms
    decisions: dict[tuple[int, int], bytes]


class Owner(NamedTuple):
    """Whose rows are asked together.

    Attributes:
        deployed: the application, as it was then.
        quota: of it.
        names: of its models.
        by: what decides them, by state.
    """

    deployed: Deployed
    quota: Quota
    names: tuple[str, ...]
    by: Sequence[Decides]


class TakenRows(NamedTuple):
    """Rows that `Poll.take` has taken."""

    numbers: bytes
    texts: bytes
    inputs: bytes
    copies: Sequence[tuple[int, int]]


class WorkerAnswers(NamedTuple):
    """What a worker has answered."""

    batch: ModelPredictions
    said: AnswerColumn


class AskedElsewhere:
    """Queries that wait for models in workers.

    Args:
        plain: of the selection kernel.
        codec: of the deployment.
    """

    def __init__(self, plain: PlainQueries, codec: Codec) -> None:
        self._plain = plain
        self._codec = codec
        self._waiting: Waiting = compiled.Waiting()
        self._forms: dict[tuple[str, str, str, int, bool], AnswerForm] = {}
        self.answered: Counter[str] = Counter()  # by application
        plain.lend(self._fetch)

    def __len__(self) -> int:
        return len(self._waiting)

    def fits(self, form: tuple[str, tuple[int, ...]]) -> bool:
        """Tell whether inputs of this element type and shape can be asked."""
        return prod(form[1]) * ITEM_BYTES[form[0]] <= min(_MOST_WIDTH, self._codec.max_bytes - _BESIDE)

    def ask(
        self,
        deployed: Deployed,
        by: Sequence[Decides],
        form: tuple[str, tuple[int, ...]],
        taken: TakenRows,
        now_us: int,
        effects: Effects,
    ) -> None:
        """Ask the models that rows of an application have drawn, in the kernel's present turn.

        Args:
            deployed: the application.
            by: what decides them, by state.
            form: element type and shape of its inputs.
            taken: the rows.
            now_us: the time.
            effects: gets what is asked.
        """
        plain, name, names = self._plain, deployed.application.name, by[0].arms.names
        quota = plain.quotas.by_name[name]
        rows = compiled.Asked(taken.numbers, taken.texts, now_us, Owner(deployed, quota, names, by))
        most = max(1, RECORD_BYTES // (ROW_BYTES + len(taken.inputs) // max(rows.count, 1)))
        self._waiting.add(rows, plain.waiting)
        quota.places += rows.places
        parts = rows.parts(taken.inputs, most, *plain.way)
        asked: Counter[tuple[str, ...]] = Counter()
        for _, arm, ids, _, _ in parts:
            asked[names[arm],] += len(ids)
        plain.count_asked(name, asked, rows.count + len(taken.copies), rows.slack_us)
        for partition, arm, ids, due_us, inputs in parts:
            plain.on_asked(names[arm], due_us, now_us)
            column = Tensor(form[0], (len(ids), *form[1]), inputs)
            batch = ModelQueries(ids, partition, due_us, column, (), "", plain.spare_us, 0)
            self._emit(topics.model_queries(names[arm]), batch, column, effects)
        if taken.copies:
            copies = [Position(topics.QUERIES, *place) for place in taken.copies]
            effects.append(Skip(tuple(copies), "duplicate_query"))

    def _emit(self, topic: str, batch: ModelQueries, rows: Tensor, effects: Effects) -> None:
        """Ask a model; if the record is too large, halve its rows, of which each fits."""
        try:
            value = self._codec.encode(batch)
        except SchemaError:
            middle, width = len(batch.query_ids) // 2, len(rows.data) // len(batch.query_ids)
            if not middle:
                raise
            for part in (slice(middle), slice(middle, None)):
                ids = batch.query_ids[part]
                data = rows.data[: middle * width] if part.start is None else rows.data[middle * width :]
                half = Tensor(rows.dtype, (len(ids), *rows.shape[1:]), data)
                made = batch._replace(query_ids=ids, due_us=batch.due_us[part], inputs=half)
                self._emit(topic, made, half, effects)
        else:
            effects.append(Emit(topic, self._plain.place(topic), None, value))

    def read(self, record: Record) -> WorkerAnswers | None:
        """Return what a worker has answered; None: it is the kernel's."""
        if not self._waiting or BEHIND in record.headers:
            return None
        try:
            batch = self._codec.decode(ModelPredictions, record.value)
        except DecodeError:
            return None
        answers = said(batch.answers, batch.outcomes) if _is_plain(batch) else None
        return None if answers is None else WorkerAnswers(batch, answers)

    def on_outputs(self, record: Record, given: WorkerAnswers, now_us: int, effects: Effects) -> bool:
        """Answer by a worker batch, which was read; False: it is the kernel's."""
        batch, answers = given
        is_ours = self._plain.takes_outputs()
        found = self._waiting.match(record.partition, batch.query_ids, batch.model) if is_ours else None
        forms = None if found is None else self._pieces(found, batch, answers.kind)
        if found is None or forms is None:
            return False
        self._plain.on_outputs(batch, record.timestamp_us, now_us)
        self._write(found, forms, given, record, now_us, effects)
        return True

    def _write(
        self,
        found: Found,
        forms: list[Pieces],
        given: WorkerAnswers,
        record: Record,
        now_us: int,
        effects: Effects,
    ) -> None:
        batch, answers = given
        is_told = any(rows.of.deployed.application.timings for rows, _, _ in found.pairs)
        worked = _worked(batch) if is_told else []
        data, spans, answered = found.write(forms, answers.kind, answers.answers, worked, now_us)
        partition, count = record.partition, sum(len(durations) for _, durations, _ in answered)
        completes = tuple([Span(topics.QUERIES, partition, *span) for span in spans])
        effects.append(EmitBatch(topics.PREDICTIONS, partition, data, count, completes))
        effects.append(Skip((record.position,), ""))
        for rows, durations_us, (late, places) in answered:
            owner: Owner = rows.of
            name = owner.deployed.application.name
            owner.quota.places -= places
            self._plain.count_answered(name, durations_us, late, now_us)
            self.answered[name] += len(durations_us)

    def _pieces(self, found: Found, batch: ModelPredictions, kind: int) -> list[Pieces] | None:
        """Return what stands around what differs, of each kind of row; None: some have no column form."""
        pieces: list[Pieces] = []
        for rows, state, arm in found.pairs:
            owner: Owner = rows.of
            name = owner.deployed.application.name
            arms, decisions = owner.by[state]
            asked = ArmPieces(arms.choices[arm].decision, batch.model, batch.version)
            try:
                form = self._form(name, asked, kind, is_timed=owner.deployed.application.timings)
                decision = decisions.get((arm, kind))
                if decision is None:
                    decision = decisions[arm, kind] = decided(self._codec, name, asked, KINDS[kind], form)
            except (Uncut, SchemaError):
                return None
            pieces.append((name.encode(), tuple(form), decision))
        return pieces

    def _form(self, name: str, asked: ArmPieces, kind: int, *, is_timed: bool) -> AnswerForm:
        key = name, asked.model, asked.version, kind, is_timed
        form = self._forms.get(key)
        if form is None:
            form = answer_form(self._codec, name, asked, KINDS[kind], is_timed=is_timed)
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            self._forms[key] = form
        return form

    def next_due(self) -> int | None:
        """Return when the next query has to be answered, at the earliest (us)."""
        return self._waiting.next_due()

    def give_due(self, now_us: int) -> None:
        """Give the kernel what it has to answer now, and everything once it times what it asks."""
        self._give(self._waiting.rows() if self._plain.is_timed() else self._waiting.due(now_us))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the queries of these partitions."""
        for owner, row in self._waiting.rows(partitions):
            owner.quota.places -= WaitingQuery(*row).places

    def _fetch(self, wanted: Iterable[tuple[int, str]]) -> None:
        if self._waiting:
            self._give(self._waiting.claim(wanted))

    def _give(self, rows: Iterable[tuple[Owner, tuple[object, ...]]]) -> None:
        found = [(owner, WaitingQuery(*row)) for owner, row in rows]  # type: ignore[arg-type] # as the table gives them
        if found:
            self._plain.resume([(o.deployed, o.quota, o.by[waits.state].arms, waits) for o, waits in found])


# Of answers: some hundred bytes each.
_MOST_FORMS: Final = 4_096


def _worked(batch: ModelPredictions) -> list[bytes]:
    """Return of each row how long it waited, how long its batch took and how many rows it had, as they are written."""
    all_have = write_long(batch.predict_us) + write_long(batch.batch_rows)
    return [write_long(waited_us) + all_have for waited_us in batch.waited_us]


def _is_plain(batch: ModelPredictions) -> bool:
    """Tell whether all rows of a worker batch were answered, without scores, as they were asked first."""
    count = len(batch.query_ids)
    is_other = batch.scores is not None or batch.messages or batch.steps
    return bool(count) and not is_other and batch.outcomes.count(Outcome.OK) == count
