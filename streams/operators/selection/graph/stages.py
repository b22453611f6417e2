"""Asks the stages of graphs: the first ones about the query, and each next stage about the answers that have come.

    query ─▶ first stages ─▶ rows ─▶ models ─▶ outputs ─▶ items ─▶ conditions ─▶ the next stages' rows ─▶ ...
                               │                  ├─ all that a row has waited for ─▶ it is asked
                               │                  └─ nothing waits any more ─▶ answer
                               └─ no time, no room, no input: it is not asked, and the answer says so

A row travels as a query of its own (`Pending`), so cache and admission treat it as any other. Its query keeps the
deadline: whatever is there by then is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.conditions import parse
from policies.graph import graph_of
from policies.items import InputError
from schemas.records import Outcome, Query
from streams.operators.contract import Record
from streams.operators.selection.graph.answer import walked
from streams.operators.selection.graph.inputs import awaited, given
from streams.operators.selection.graph.walk import ROOM, StageRow, Walk
from streams.operators.selection.pending import PLACE_BYTES, Pending, PersonalPending, size
from streams.operators.selection.questions import Asker, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.items import Item
    from schemas.records import Input, Prediction, Stage
    from streams.operators.contract import Effects


class Stages(Asker[None]):
    """Asks the stages of all queries in hand."""

    __slots__ = ()

    def begin(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Ask the first stages about a query whose model has been chosen."""
        application = query.application
        assert application is not None
        (chosen,), query.models = query.models[:1], ()  # of its own it asks none: its rows do
        if any(name not in self._models for name in application.asks if name not in application.models):
            query.decision = None
            effects.append(self._combiner.answer(query, now_us, "unknown_model"))
            return
        self._combiner.watch_latencies()
        self._combiner.open([query])  # which may rename it, and its rows are named after it
        query.follow_up = walk = Walk(self, graph_of(application.stages), chosen, query.row_id)
        query.keep_input()
        self._follow(query, walk, None, now_us)
        self._end(query, walk, now_us, effects)

    def on_output(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Take a row's output, and ask the stages that follow; the last one answers its query."""
        row, asked = query.follow_up, query
        if not isinstance(row, StageRow) or row.query is None:
            return
        self._combiner.let_go(asked.partition, asked.row_id)
        query = row.query
        walk = query.follow_up
        if not isinstance(walk, Walk) or query.answered or walk.waiting.pop(asked.row_id, None) is None:
            return
        row.output, row.took_us, row.message = asked.outputs[row.model], now_us - row.at_us, asked.message
        self._count(query, row, row.output.outcome.value)
        if row.is_good:
            self._follow(query, walk, row, now_us)
            for joining in walk.joins.pop(row.row_id, ()):
                self._join(query, walk, joining, now_us)
        self._end(query, walk, now_us, effects)

    def answer(self, query: Pending, now_us: int, reason: str | None) -> Prediction | None:
        """Return the answer of a graph; its rows are let go of, and those without an output are misses."""
        walk, latencies = query.follow_up, self._combiner.latencies
        if not isinstance(walk, Walk):
            return None
        for row_id, row in walk.waiting.items():
            if latencies is not None:
                latencies.miss(row.model, now_us - row.at_us, now_us)
            self._combiner.let_go(query.partition, row_id)
        walk.waiting.clear()
        return walked(query, walk, now_us, reason, self._models)

    def _end(self, query: Pending, walk: Walk, now_us: int, effects: Effects) -> None:
        if not walk.waiting and not query.answered:
            effects.append(self._combiner.answer(query, now_us))

    def _follow(self, query: Pending, walk: Walk, row: StageRow | None, now_us: int) -> None:
        """Ask the stages after a row; None = the first ones."""
        following = walk.graph.after["" if row is None else row.stage.name]
        items: list[Item | None] = [None]
        if row is not None and following:
            found, is_list = row.items()
            items = [*found]
            if is_list:
                walk.lists.add(row.stage.name)
        for stage in following:
            self._fan_out(query, walk, stage, row, items, now_us, len(following))

    def _fan_out(
        self,
        query: Pending,
        walk: Walk,
        stage: Stage,
        row: StageRow | None,
        items: Sequence[Item | None],
        now_us: int,
        stages: int,
    ) -> None:
        """Ask a stage about the items that fulfil its condition, as many as there is room for."""
        condition = parse(stage.where)
        chosen = [place for place, item in enumerate(items) if item is None or condition.holds(item.fields)]
        room = (ROOM if row is None else row.room) // stages
        asked, left = chosen[: min(stage.most, room)], chosen[min(stage.most, room) :]
        for place in asked:
            new = self._new(query, walk, stage, row, place, items[place])
            new.room = room // len(asked)
            self._join(query, walk, new, now_us)
        if left:
            new = self._new(query, walk, stage, row, left[0], None)
            new.at_us, new.left_out = now_us, len(left)
            new.fail(Outcome.OVERLOADED)
            self._count(query, new, "left_out")

    def _new(
        self, query: Pending, walk: Walk, stage: Stage, before: StageRow | None, place: int, item: Item | None
    ) -> StageRow:
        row = StageRow(walk.root_id, stage, stage.model or walk.model, before, place, item)
        row.until_us = query.received_us + int(stage.share * (query.until_us - query.received_us))
        walk.add(row)
        query.grow(PLACE_BYTES)
        return row

    def _join(self, query: Pending, walk: Walk, row: StageRow, now_us: int) -> None:
        """Ask a row, if all answers that it needs have come; or note for which it waits."""
        try:
            row_id = awaited(walk, row)
        except InputError as error:
            row.at_us = now_us
            self._refuse(query, row, error)
            return
        if row_id:
            walk.joins.setdefault(row_id, []).append(row)
            return
        # A query may have waited for its policy's state: what it was asked first counts from when it was read.
        row.at_us = query.received_us if row.before is None and not row.beside else now_us
        self._put(query, walk, row, now_us)

    def _put(self, query: Pending, walk: Walk, row: StageRow, now_us: int) -> None:
        """Ask a row, if its input can be made and its model usually answers in time."""
        assert query.input is not None
        try:
            its_input = given(row, query.input, self._size(row.model, query.input))
        except InputError as error:
            self._refuse(query, row, error)
            return
        asked = _asked(query, row, its_input, is_chosen=not row.stage.model)
        if not self._is_in_time(row, now_us) or not self._is_put(asked, row, walk, now_us):
            row.fail(Outcome.OVERLOADED)
            row.took_us = now_us - row.at_us
            self._count(query, row, Outcome.OVERLOADED.value)
            return
        walk.waiting[asked.row_id] = row
        query.grow(size(its_input))
        if asked.outputs:  # remembered
            self._combiner.ready.append(asked)

    def _is_put(self, asked: Pending, row: StageRow, walk: Walk, now_us: int) -> bool:
        """Ask a row's model; False: it refuses."""
        row.asker = self
        step, place = walk.graph.depths[row.stage.name], self._questions.row_turn % self._models[row.model].partitions
        if self._questions.put(Question(asked, asked.models, row.until_us, step, place), now_us):
            return True
        self._combiner.let_go(asked.partition, asked.row_id)
        return False

    def _refuse(self, query: Pending, row: StageRow, error: InputError) -> None:
        row.fail(Outcome.INVALID, f"stage {row.stage.name}: {error}")
        self._count(query, row, Outcome.INVALID.value)

    def _size(self, model: str, given: Input) -> tuple[int, ...]:
        """Return height and width of the images that a model takes; nothing if it takes others than the query has."""
        shape = self._models[model].shape
        dimensions = len(getattr(given, "shape", ()))
        return shape[:2] if len(shape) == dimensions and min(shape[:2], default=0) > 0 else ()

    def _is_in_time(self, row: StageRow, now_us: int) -> bool:
        """Tell whether a model usually answers by a row's time; one that is not known, or is to be tried, may."""
        latencies = self._combiner.latencies
        if latencies is None or now_us >= row.until_us:
            return now_us < row.until_us
        expected_us = latencies.expected_us((row.model,), now_us)[0] and latencies.quantile_us(row.model, 0.5)
        return now_us + (expected_us or 0) <= row.until_us

    def _count(self, query: Pending, row: StageRow, outcome: str) -> None:
        labels = ("application", query.application_name, "stage", row.stage.name, "outcome", outcome)
        self._counters["stages_total", *labels] += 1


def _asked(query: Pending, row: StageRow, its_input: Input, *, is_chosen: bool) -> Pending:
    """Return a row as a query of its own: its time is the stage's, and who answers is not for its policy to say."""
    version = query.version if is_chosen else None
    position = query.origin.completes[0]
    its = Query(
        row.row_id, query.application_name, its_input, query.context, row.at_us, None, query.priority, (), version
    )
    record = Record(position.topic, position.partition, position.offset, row.at_us, query.origin.key, None)
    made = PersonalPending if isinstance(query, PersonalPending) else Pending
    asked = made(its, record, query.application, row.at_us, row.at_us, row.until_us, row.until_us)
    asked.models, asked.follow_up, row.query = (row.model,), row, query
    if isinstance(asked, PersonalPending):
        asked.draws_as(query)
    return asked
