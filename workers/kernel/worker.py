"""The worker's kernel: model queries in, one ModelPredictions record per batch and reply partition out.

    models.<m>.queries ─▶ on_records ─▶ batcher ─▶ take ─▶ (a runtime predicts) ─▶ done, answer ─▶ model-predictions
                              │                      │                                 ▲
                              └ undecodable: DLQ     └─ expired, refused ──────────────┘

Whoever runs it takes a batch, predicts it, says with `done` how long that took, and hands the results to `answer`,
perhaps while the next batch is being predicted. A record is complete when the outcome of its last row is acknowledged:
all its rows are answered to one partition, in whose lane what was written before is acknowledged before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas import topics
from schemas.codec import MAX_TEXT
from schemas.errors import DecodeError
from schemas.records import ModelQueries, Outcome
from streams.operators.contract import DeadLetter, Operator, Position, Skip
from streams.operators.statistics import Counters, Durations, render
from workers.kernel.batcher import Take, Waiting
from workers.kernel.results import Answering, Batch, Source, asked_of
from workers.kernel.routing import SHADOW, Routes, label, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, HandOver, Record
    from workers.inputs.rows import Predicted
    from workers.kernel.batcher import Batcher
    from workers.kernel.results import Asked, Identity


class ModelWorker(Operator):
    """The kernel of one replica of one model."""

    def __init__(
        self,
        codec: Codec,
        identity: Identity,
        batcher: Batcher[Asked],
        partitions: int,
        beside: str = "",
        row_bytes: int = 1 << 40,
    ) -> None:
        """Start with an empty queue.

        Args:
            codec: for model queries and predictions.
            identity: goes into every record.
            batcher: holds the queue and sizes the batches.
            partitions: of `model-predictions`; a query that asks for another one is refused.
            beside: its label, if the version runs beside the one that serves: its figures carry the version.
            row_bytes: that a waiting row may take, on average, before rows count for more than they are.
        """
        self.gauges: Mapping[str, float] = {}  # reported besides: what is known of the model once it is loaded
        self._codec = codec
        self._batcher = batcher
        self._row_bytes = row_bytes
        self._partitions = partitions
        self._counters = Counters()
        self._durations = Durations("model", "model")
        self._beside = beside
        topic = topics.SHADOWS if beside == SHADOW else topics.MODEL_PREDICTIONS
        self._answering = Answering(codec, topic, identity)
        self._label = ("model", identity.model, *(("version", identity.version) if beside else ()))
        self._routes: Routes[ModelWorker] = Routes({}, {})
        self._handed: frozenset[str] = frozenset()
        self._now_us = 0

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Decode and queue; what is no model query is dead, what the queue has no room for is expired."""
        effects: Effects = []
        items: list[tuple[int, Asked]] = []
        ranks: dict[int, int] = {}
        for record in records:
            if record.topic == topics.MODELS:
                self.on_model(record)
                continue
            try:
                queries = self._codec.decode(ModelQueries, record.value)
            except DecodeError as error:
                effects.append(DeadLetter(record, error.cause, str(error)))
                continue
            fault = self._fault(queries)
            if fault is not None:
                effects.append(DeadLetter(record, *fault))
                continue
            self._gather(queries, record.position, now_us, items, ranks, effects)
            if not queries.query_ids:
                effects.append(Skip((record.position,), ""))
        self._counters["dead_letters_total", *self._label] += sum(isinstance(e, DeadLetter) for e in effects)
        effects += self.offer(items, now_us, ranks)
        return effects

    def on_handed(self, handed: Sequence[HandOver], now_us: int) -> Effects:
        """Queue what a kernel of this process asks: it has been checked there."""
        effects: Effects = []
        items: list[tuple[int, Asked]] = []
        ranks: dict[int, int] = {}
        for topic, partition, queries in handed:
            assert isinstance(queries, ModelQueries)
            self._gather(queries, Position(topic, partition, 0), now_us, items, ranks, effects)
        return effects + self.offer(items, now_us, ranks)

    def hand_over(self, topics: frozenset[str]) -> None:
        """Give answers to these topics as they are; those of a shadow go elsewhere."""
        self._handed = topics
        self._answering = replace(self._answering, is_handed=self._answering.topic in topics)
        self.route(self._routes)

    def _gather(
        self,
        queries: ModelQueries,
        position: Position,
        now_us: int,
        items: list[tuple[int, Asked]],
        ranks: dict[int, int],
        effects: Effects,
    ) -> None:
        """Add a record's rows, and their ranks, to what is to be queued; another version's rows go there."""
        self.spare(queries.spare_us)
        asked = asked_of(queries, position)
        ranked = dict(zip(queries.query_ids, queries.priorities, strict=True)) if queries.priorities else {}
        if self._routes.takers or queries.version:
            asked = self._routed(asked, queries.version, ranked, now_us, effects)
        ranks |= _ranks(asked, ranked, len(items))
        items += asked

    def offer(self, items: Sequence[tuple[int, Asked]], now_us: int, ranks: Mapping[int, int]) -> Effects:
        """Queue rows (due_us, row) that have just been fetched; what there is no room for is expired.

        Args:
            items: the rows.
            now_us: the time.
            ranks: priorities by index, of those that have one.
        """
        refused = self._batcher.offer(items, now_us, ranks)
        if not refused:
            return []
        self._counters["refused_total", *self._label] += len(refused)
        return self.expire(Take((), tuple(refused), self._batcher.cap, len(self._batcher)), now_us)

    def spare(self, spare_us: int) -> None:
        """Take rows for so long after they are due, whichever version they go to."""
        self._batcher.spare_us = spare_us
        for beside in self._routes.takers.values():
            beside.spare(spare_us)

    def route(self, routes: Routes[ModelWorker]) -> None:
        """Give these versions their share of what is asked from now on; they answer as this one does."""
        self._routes = routes
        for beside in routes.takers.values() if self._handed else ():
            beside.hand_over(self._handed)

    def on_model(self, record: Record) -> None:
        """Take a record about a model, perhaps another version of this one; the kernel alone does nothing about it."""

    def ring(self) -> None:
        """Wake who predicts; the kernel alone has nobody to wake."""

    def succeed(self, version: str) -> None:
        """Answer in the name of this version from now on; what another one predicted has been answered."""
        self._answering = replace(self._answering, identity=self.identity._replace(version=version))

    def take(self, now_us: int) -> Take[Asked]:
        """Take the next batch; its rows wait for `answer`, and with no rows `expire` says so of the expired."""
        self._now_us = now_us
        return self._batcher.take(now_us)

    def done(self, take: Take[Asked], predict_us: int, now_us: int, *, deaf: bool = False) -> None:
        """Learn from how long a batch took, `deaf` if nothing was fetched meanwhile; `answer` may come after a take."""
        self._batcher.done(len(take.rows), predict_us, now_us, deaf=deaf)

    def answer(self, take: Take[Asked], predicted: Predicted, started_us: int, predict_us: int) -> Effects:
        """Turn a predicted batch into records.

        Args:
            take: the batch; its expired rows go into the same records.
            predicted: the results of `take.rows`, in their order.
            started_us: when predicting began.
            predict_us: how long it took, the whole batch.
        """
        self._count(take, predicted, predict_us)
        done_us = started_us + predict_us
        self._durations.latest[self.identity.model].extend([done_us - row.fetched_us for row in take.rows])
        return self._answering.records(Batch.of(take, predicted, started_us, predict_us))

    def expire(self, take: Take[Asked], now_us: int) -> Effects:
        """Say of a take without rows that its queries are expired."""
        return self._unpredicted(take, Outcome.EXPIRED, now_us)

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start these partitions with nothing queued."""
        self.on_revoked(tuple(starts))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Drop what is queued from these partitions: their new owner reads it again."""
        gone = frozenset(partitions)
        self._batcher.forget(lambda asked: asked.source.position.partition in gone)
        for beside in self._routes.takers.values():
            beside.on_revoked(partitions)

    @property
    def identity(self) -> Identity:
        """Who answers."""
        return self._answering.identity

    @property
    def held(self) -> int:
        """Rows that wait, for whichever version: a record may hold hundreds; of large rows each counts as several."""
        answering = (taker for version, taker in self._routes.takers.items() if self._routes.shares[version])
        rows = max(len(self._batcher), -(-self._batcher.bytes // self._row_bytes))
        return rows + sum(taker.held for taker in answering)

    def statistics(self) -> Mapping[str, float]:
        """Return rows by outcome, batches by reason, and gauges of cap, queue and objective, all with the model."""
        figures = {
            **self._counters.rendered(),
            **({} if self._beside else self._durations.rendered()),
            **self.gauges,
            render(("batch_cap", *self._label)): float(self._batcher.cap),
            render(("queue_rows", *self._label)): float(len(self._batcher)),
            render(("queue_bytes", *self._label)): float(self._batcher.bytes),
            render(("objective_us", *self._label)): float(self._batcher.objective(self._now_us)),
        }
        model, version, _ = self.identity
        if not self._beside:
            figures[render(("serving", "model", model, "version", version))] = 1.0
        for beside, share in self._routes.shares.items():
            figures[render((label(share), "model", model, "version", beside))] = share or 1.0
            figures |= self._routes.takers[beside].statistics()
        return figures

    def _unpredicted(self, take: Take[Asked], outcome: Outcome, now_us: int, message: str = "") -> Effects:
        self._counters["rows_total", *self._label, "outcome", outcome.value] += len(take.expired)
        return self._answering.records(Batch.unpredicted(take, outcome, now_us, message))

    def _routed(
        self,
        asked: list[tuple[int, Asked]],
        version: str,
        ranked: Mapping[str, int],
        now_us: int,
        effects: Effects,
    ) -> list[tuple[int, Asked]]:
        """Give the rows of a record to the versions that answer them; returns what is left for this one."""
        for shadow in self._routes.shadows:
            shadow.mirror(asked, now_us)
        name = named(version, self.identity.model)
        if not name:
            groups = self._routes.split(asked)
        else:
            found = self._routes.named(name, self.identity.version, asked)
            groups = found or {}
            if found is None and asked:
                rows = tuple(Waiting(due_us, 0, now_us, row) for due_us, row in asked)
                take = Take((), rows, self._batcher.cap, len(self._batcher))
                effects += self._unpredicted(take, Outcome.UNKNOWN_VERSION, now_us, self._running(name))
        for beside, rows_beside in groups.items():
            if beside:
                effects += self._routes.takers[beside].offer(rows_beside, now_us, _ranks(rows_beside, ranked, 0))
        return groups.get("", [])

    def _running(self, name: str) -> str:
        """Say which versions run instead of the one that was named."""
        model, version, _ = self.identity
        beside = [f"{found} ({label(share)})" for found, share in self._routes.shares.items()]
        return f"model {model} runs {', '.join([version, *beside])}, not {name}"

    def mirror(self, asked: Sequence[tuple[int, Asked]], now_us: int) -> None:
        """Queue copies of rows that another version answers, as far as there is room: nobody waits for them."""
        copies: dict[int, Source] = {}
        items = []
        for due_us, row in asked[: max(0, self._batcher.room)]:
            source = copies.get(id(row.source))
            if source is None:  # one row more than there are: it is never the last, and completes nothing
                given = row.source
                source = copies[id(given)] = Source(given.position, given.reply_partition, given.column, given.left + 1)
            items.append((due_us, row._replace(source=source)))
        self.offer(items, now_us, {})

    def _fault(self, queries: ModelQueries) -> tuple[str, str] | None:
        """Return cause and message if these decode and yet cannot be answered."""
        partition = queries.reply_partition
        if not 0 <= partition < self._partitions:
            return "reply_partition", f"reply partition {partition} is not one of the {self._partitions} there are"
        longest = max(map(len, queries.query_ids), default=0)
        if longest > MAX_TEXT:
            return "invalid", f"ModelQueries: a query id of {longest} characters, over {MAX_TEXT}"
        return None

    def _count(self, take: Take[Asked], predicted: Predicted, predict_us: int) -> None:
        counters, label = self._counters, self._label
        counters["rows_total", *label, "outcome", Outcome.OK.value] += predicted.outcomes.count(Outcome.OK)
        for outcome in predicted.outcomes:  # one by one, as they are few: to hash an outcome takes a call
            if outcome is not Outcome.OK:
                counters["rows_total", *label, "outcome", outcome.value] += 1
        counters["rows_total", *label, "outcome", Outcome.EXPIRED.value] += len(take.expired)
        for reason in predicted.reasons.values():
            counters["invalid_total", *label, "reason", reason] += 1
        counters["batches_total", *label, "reason", take.reason] += 1
        counters["batch_rows_total", *label] += len(take.rows)
        counters["predict_us_total", *label] += predict_us


def _ranks(asked: Sequence[tuple[int, Asked]], ranked: Mapping[str, int], start: int) -> dict[int, int]:
    """Return the priorities of rows by index, counted from `start`."""
    return {start + index: ranked[row.query_id] for index, (_, row) in enumerate(asked)} if ranked else {}
