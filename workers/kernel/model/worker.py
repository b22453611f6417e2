"""The worker's kernel: model queries in, one ModelPredictions record per batch and reply partition out.

    models.<m>.queries ─▶ rows by version ─▶ lanes ─▶ Predict ─▶ on_predicted ─▶ model-predictions
            │                                  │                     ▲
            └ undecodable: DLQ                 └─ expired, refused ──┘
    models ─▶ rollout ─▶ Load, Unload ─▶ on_loaded ─▶ another version serves, or runs beside

A batch is answered after the next one has been given to the model, so that the model does not wait for the answers to
be written. A record is complete when the outcome of its last row is acknowledged. All its rows are answered to one
partition, and a partition's lane acknowledges records in the order in which they were written.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from schemas import topics
from schemas.codec import MAX_TEXT
from schemas.errors import DecodeError
from schemas.records import ModelQueries, Outcome
from streams.operators.contract import NONE_UNREAD, DeadLetter, Loaded, Needs, Operator, Predict, Ran, Skip
from streams.operators.statistics import render
from workers.inputs.columns import Column
from workers.kernel.model.batcher import Batcher, Take, Waiting
from workers.kernel.model.lane import lane_of
from workers.kernel.model.loading import Loader
from workers.kernel.model.offers import Offers, offer_of
from workers.kernel.model.results import Identity, asked_of
from workers.kernel.model.rollout import Rollout
from workers.kernel.model.routing import label, named
from workers.kernel.model.warm_up import RecentRows
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Model, Tensor
    from streams.operators.contract import Effects, Predicted, Record, Unread
    from workers.kernel.model.lane import Joint, Lane, Running
    from workers.kernel.model.offers import SharedHost
    from workers.kernel.model.results import Asked
    from workers.kernel.model.versions import Wanted


class _Unwritten(NamedTuple):
    """A predicted batch whose answers are still to be written."""

    lane: Lane
    running: Running
    results: Predicted
    took_us: int


class Direct(NamedTuple):
    """Whom to ask at once.

    Attributes:
        version: that answers.
        copy: of it.
        patience_us: after which it counts as hung.
    """

    version: str
    copy: int
    patience_us: int


class ModelWorker(Operator):
    """The kernel of one replica of one model.

    Alone it starts each batch itself. In a host it `offers` what waits, and the host says when to `start`, what to
    `refuse`, and how a batch has `ended`.
    """

    def __init__(
        self,
        codec: Codec,
        model: Model,
        instance: str,
        settings: WorkerSettings | None = None,
        queue: Callable[[], Batcher[Asked]] | None = None,
        *,
        recalls: bool = False,
        shared: SharedHost | None = None,
    ) -> None:
        """Start with empty queues; the first `on_timer` loads the model.

        Args:
            codec: for model queries and predictions.
            model: which.
            instance: unique in the deployment.
            settings: how it batches, and how versions follow each other.
            queue: returns the queue of the version that serves; None = as the settings say.
            recalls: whether `recall` will be called; until then, for some seconds, no other version is tried.
            shared: what it shares with other models of its host; None = it is alone.
        """
        self._codec = codec
        self._model = model
        self._instance = instance
        self._settings = settings = settings or WorkerSettings()
        self._row_bytes = max(1, settings.queue_bytes // settings.queue_rows)
        self._shared = shared
        self._number = count().__next__
        self._loader = Loader(self._number, None if shared is None else shared.copies)
        identity = Identity(model.name, model.version, instance)
        batcher = queue() if queue is not None else None
        self._serving = lane_of(codec, identity, settings, batcher, copy=self._loader.first)
        self._recent = RecentRows(settings.warm_up_rows, recalls=recalls)
        self._rollout = Rollout(model, self._serving, self._loader, self._lane_beside, self._recent, settings)
        self._beside = self._rollout.beside
        self._running: dict[int, tuple[Lane, Sequence[Input]]] = {}
        self._given: Effects = []  # effects for models: performed even if a call fails after deciding them
        self._unwritten: list[_Unwritten] = []
        self._written_us = 0
        self._asked = 0

    def recall(self, rows: Sequence[Input]) -> None:
        """Take the rows that the model was asked last before this start; versions are tried on them."""
        self._recent.recall(rows)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Decode and queue; a record that is no model query becomes a dead letter, a row without room expires."""
        effects: Effects = []
        items: list[tuple[int, Asked]] = []
        ranks: dict[int, int] = {}
        for record in records:
            if record.topic == topics.MODELS:
                effects += self._rollout.versions.on_record(record, self._codec)
                self._beside.route()
                continue
            try:
                queries = self._codec.decode(ModelQueries, record.value)
            except DecodeError as error:
                effects.append(self._dead(record, error.cause, str(error)))
                continue
            fault = self._fault(queries)
            if fault is not None:
                effects.append(self._dead(record, *fault))
                continue
            self._gather(queries, record, now_us, items, ranks, effects)
            if not queries.query_ids:
                effects.append(Skip((record.position,), ""))
        if items:
            effects += self._serving.offer(items, now_us, ranks)
        effects += self._go_on(now_us)
        return self._with_given(effects)

    def needs(self) -> Needs:
        """Tell what the kernel needs next: a timer, and the number of rows that it holds."""
        return Needs(self.next_deadline(), self.held)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Write the answers that are still unwritten, and do what is due."""
        effects = self._write()
        if self._shared is not None:
            effects += [effect for lane in self._lanes() if lane.fault is None for effect in lane.expire(now_us)]
        effects += self._go_on(now_us)
        return self._with_given(effects)

    def next_deadline(self) -> int | None:
        """Return when something is due (us)."""
        if self._given:
            return 0
        if self._unwritten:
            return self._written_us
        dues = [self._rollout.next_deadline(), *(lane.next_start() for lane in self._lanes())]
        if self._shared is not None:
            dues += [lane.expires_us for lane in self._lanes()]
        return min((due for due in dues if due is not None), default=None)

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Take a batch's results: give the model its next rows, then answer."""
        return self.ended(batch_id, ran, now_us)

    def ended(self, batch_id: int, ran: Ran | None, now_us: int, joint: Joint | None = None) -> Effects:
        """Take what became of a batch.

        Args:
            batch_id: which.
            ran: its outcome. Of a host, rows that were lost through another model are queued again, for when their own
                is back. None = it never began: its rows are queued again.
            now_us: the time.
            joint: what it was a part of; None = it was all.
        """
        if ran is None or (self._shared is not None and batch_id in self._running and is_innocent(ran)):
            lane, _ = self._running.pop(batch_id)
            lane.again(is_there=ran is None)
            return []
        results, took_us, is_blocking, is_lost = ran
        if self._loader.on_predicted(batch_id, results, is_lost=is_lost):
            return self._with_given(self._go_on(now_us))
        lane, rows = self._running.pop(batch_id)
        running = lane.finish(took_us, now_us, is_blocking=is_blocking, joint=joint)
        lane.is_ready = not is_lost
        effects = self._write()
        if lane is self._serving:
            self._recent.note(rows, results.outcomes)
        self._unwritten.append(_Unwritten(lane, running, results, took_us))
        self._written_us = now_us
        if is_blocking:
            effects += self._write()
        effects += self._go_on(now_us)
        if lane.running is None:
            effects += self._write()
        return self._with_given(effects)

    def direct(self, now_us: int) -> Direct | None:
        """Return whom to ask beside the queue, where one version answers all; None = nobody."""
        lane = self._serving
        if self._beside.lanes or self._rollout.is_stirred(now_us) or not lane.is_there:
            return None
        return Direct(lane.identity.version, lane.copy, lane.patience_us(now_us))

    def on_answered(self, rows: Tensor, took_us: int, now_us: int) -> None:
        """Take that `direct` has answered all of some rows (n, ...), which were read at `now_us`."""
        column, count = Column(rows), rows.shape[0]
        self._asked += count
        self._recent.ask(column, count)
        self._recent.note_all(column, count)
        self._serving.on_answered(count, took_us, now_us)

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Take the outcome of loading a version, at first or again."""
        copy, fault = loaded.copy, loaded.fault
        if fault is None:
            self._recover(copy)
        elif copy == self._serving.copy and self._loader.loaded.get(copy) == "":
            self._serving.fault = fault  # it was there, and its host has taken it out: its rows fail until it is back
        else:
            self._loader.on_loaded(copy, fault)
            self._beside.break_down(copy, fault)
        if fault is not None and loaded.is_hopeless:
            self._rollout.retries.give_up(loaded.version, fault)
        return self._with_given(self._go_on(now_us))

    def _recover(self, copy: int) -> None:
        """Ask a copy that is loaded, at first or again."""
        self._loader.on_loaded(copy, None)
        for lane in self._lanes():
            if lane.copy == copy and copy in self._loader.loaded:
                if lane is self._serving:
                    lane.recover()
                lane.is_ready = True

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Drop what is queued from these partitions: it is read again."""
        gone = frozenset(starts)
        for lane in self._lanes():
            lane.drop(gone)

    @property
    def held(self) -> int:
        """Rows that wait, for any version: a record may hold hundreds, and a large row counts as several."""
        answering = [self._serving, *self._beside.routes.answering]
        return sum(max(len(lane.batcher), -(-lane.batcher.bytes // self._row_bytes)) for lane in answering)

    def statistics(self) -> Mapping[str, float]:
        """Return the figures of all versions, and how they changed."""
        model, version, _ = self._serving.identity
        figures = {**self._serving.statistics(), **self._rollout.statistics()}
        figures[render(("serving", "model", model, "version", version))] = 1.0
        routes = self._beside.routes
        for beside, lane in routes.takers.items():
            share = routes.shares.get(beside)
            figures[render((label(share), "model", model, "version", beside))] = share or 1.0
            figures |= lane.statistics()
        for given, labelled in routes.labels.items():
            figures[render(("labelled", "model", model, "version", labelled, "label", given))] = 1.0
        return figures

    def offers(self) -> Offers:
        """Return what waits for the copies of all versions."""
        if self._shared is not None:
            self._shared.trunks.of(self._serving, self._rollout.served)
            for lane, model in self._beside.models():
                self._shared.trunks.of(lane, model)
        found = {lane.copy: offer_of(lane, is_serving=False) for lane in self._beside.lanes}
        return Offers(self._asked, {self._serving.copy: offer_of(self._serving, is_serving=True), **found})

    def start(self, copy: int, most: int, now_us: int, latest_us: int, whole: int = 0) -> Effects:
        """Begin a batch of at most so many rows; without a `Predict` among the effects none has begun.

        Args:
            copy: that is asked.
            most: rows.
            now_us: the time.
            latest_us: when the batch has to start, by the estimate of who chose it.
            whole: rows of the batch that these are a part of; 0 = they are all of it.
        """
        effects: Effects = []
        lane = self._lane(copy)
        self._perform_start(lane, lane.start_now(now_us, self._number, most, latest_us, whole), effects)
        return self._with_given(effects)

    def refuse(self, copy: int, rows: int, now_us: int, reason: str) -> Effects:
        """Give up so many rows that wait for a copy, those that are due first, because they cannot be in time."""
        return self._lane(copy).refuse(rows, now_us, reason)

    def _lane(self, copy: int) -> Lane:
        return next(lane for lane in self._lanes() if lane.copy == copy)

    def _lanes(self) -> Sequence[Lane]:
        return (self._serving, *self._beside.lanes)

    def _go_on(self, now_us: int) -> Effects:
        """Do everything that can be done now: versions change, models get their next rows."""
        effects: Effects = []
        rollout = self._rollout
        while True:
            if rollout.is_stirred(now_us):
                self._given += rollout.advance(now_us)
            for lane in self._lanes():
                if self._shared is None or lane.fault is not None:
                    self._start(lane, now_us, effects)
            if not rollout.is_stirred(now_us):
                return effects

    def _start(self, lane: Lane, now_us: int, effects: Effects) -> None:
        """Let a lane begin its next batches, and take what it answers without its model."""
        self._perform_start(lane, lane.start(now_us, self._number, is_vital=lane is self._serving), effects)

    def _perform_start(self, lane: Lane, started: Effects, effects: Effects) -> None:
        """Note the batch that a lane has begun; everything else is added to the effects."""
        for effect in started:
            if isinstance(effect, Predict):
                self._running[effect.batch_id] = lane, effect.rows
                self._given.append(effect)
            else:
                effects.append(effect)

    def _with_given(self, effects: Effects) -> Effects:
        """Return the effects, followed by those for models."""
        if not self._given:
            return effects
        given, self._given = self._given, []
        return effects + given

    def _write(self) -> Effects:
        """Answer the batches that have been predicted."""
        unwritten, self._unwritten = self._unwritten, []
        return [effect for each in unwritten for effect in each.lane.answers(each.running, each.results, each.took_us)]

    def _gather(
        self,
        queries: ModelQueries,
        record: Record,
        now_us: int,
        items: list[tuple[int, Asked]],
        ranks: dict[int, int],
        effects: Effects,
    ) -> None:
        """Add a record's rows and their ranks to those to be queued; rows for another version go to its lane."""
        routes = self._beside.routes
        self._serving.batcher.spare_us = queries.spare_us
        for lane in routes.takers.values():
            lane.batcher.spare_us = queries.spare_us
        asked = asked_of(queries, record.position)
        self._asked += len(asked)
        if asked:
            self._recent.ask(asked[0][1].source.column, len(asked))
        ranked = dict(zip(queries.query_ids, queries.priorities, strict=True)) if queries.priorities else {}
        if routes.takers or queries.version:
            asked = self._routed(asked, queries.version, ranked, now_us, effects)
        ranks |= _ranks(asked, ranked, len(items))
        items += asked

    def _routed(
        self,
        asked: list[tuple[int, Asked]],
        version: str,
        ranked: Mapping[str, int],
        now_us: int,
        effects: Effects,
    ) -> list[tuple[int, Asked]]:
        """Give the rows of a record to the versions that answer them; returns those left for the serving one."""
        routes, serving = self._beside.routes, self._serving
        for shadow in routes.shadows:
            shadow.mirror(asked, now_us)
        name = named(version, self._model.name)
        if not name:
            groups = routes.split(asked)
        else:
            found = routes.named(name, serving.identity.version, asked)
            groups = found or {}
            if found is None and asked:
                rows = tuple(Waiting(due_us, 0, now_us, row) for due_us, row in asked)
                take = Take((), rows, serving.batcher.cap, len(serving.batcher))
                effects += serving.unpredicted(take, Outcome.UNKNOWN_VERSION, now_us, self._told(name))
        for beside, rows_beside in groups.items():
            if beside:
                effects += routes.takers[beside].offer(rows_beside, now_us, _ranks(rows_beside, ranked, 0))
        return groups.get("", [])

    def _told(self, name: str) -> str:
        """Say which versions run instead of the one that was named."""
        model, version, _ = self._serving.identity
        routes = self._beside.routes
        beside = [f"{found} ({label(routes.shares.get(found))})" for found in routes.takers]
        beside += [f"{given} = {labelled}" for given, labelled in routes.labels.items()]
        return f"model {model} runs {', '.join([version, *beside])}, not {name}"

    def _dead(self, record: Record, cause: str, message: str) -> DeadLetter:
        self._serving.count("dead_letters_total", 1)
        return DeadLetter(record, cause, message)

    def _fault(self, queries: ModelQueries) -> tuple[str, str] | None:
        """Return cause and message if these decode and yet cannot be answered."""
        partition, there_are = queries.reply_partition, self._settings.partitions
        if not 0 <= partition < there_are:
            return "reply_partition", f"reply partition {partition} is not one of the {there_are} there are"
        longest = max(map(len, queries.query_ids), default=0)
        if longest > MAX_TEXT:
            return "invalid", f"ModelQueries: a query id of {longest} characters, over {MAX_TEXT}"
        return None

    def _lane_beside(self, wanted: Wanted, copy: int) -> Lane:
        """Make the lane of a version that runs beside the one that serves."""
        identity = Identity(self._model.name, wanted.model.version, self._instance)
        return lane_of(self._codec, identity, self._settings, beside=label(wanted.share), copy=copy)


def is_innocent(ran: Ran) -> bool:
    """Tell whether a batch was lost through another model."""
    return ran.is_lost and ran.results.fault is None


def _ranks(asked: Sequence[tuple[int, Asked]], ranked: Mapping[str, int], start: int) -> dict[int, int]:
    """Return the priorities of rows by index, counted from `start`."""
    return {start + index: ranked[row.query_id] for index, (_, row) in enumerate(asked)} if ranked else {}
