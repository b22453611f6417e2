"""One version of a model at work: its queue, the batch that it predicts, and what it answers.

    offer ─▶ queue ─start─▶ Predict ─▶ the model ─▶ finish ─▶ answers ─▶ model-predictions, or shadows
               │                                                ▲
               └─ expired, refused, no model ───────────────────┘

One batch at a time is with the model. Every time is an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from policies.allowed_sizes import AllowedSizes
from policies.batching import create_controller
from schemas import topics
from schemas.records import Outcome
from streams.operators.contract import Predict, Predicted
from streams.operators.statistics import Counters, Durations, render
from workers.kernel.model.batcher import Batcher, Take
from workers.kernel.model.results import AnswerWriter, DecidedBatch, RowSource, inputs_of, size_of
from workers.kernel.model.routing import SHADOW
from workers.kernel.model.service_times import QUICK_US

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects
    from workers.kernel.model.results import Asked, Identity
    from workers.settings import WorkerSettings

# A model that needs longer counts as hung. No batch objective comes near, and loading into a cache may take seconds.
MIN_PATIENCE_US = 5_000_000
# How long a lane waits for rows after a batch that blocked reading; at most half of the batch. Beside other work on two
# cores a leg takes 1 to 2 ms.
LISTEN_US = 5_000
# Rows that come this soon after such a batch were already on their way. The lane waits for the next fetch's answer.
BREATH_US = 1_000
# The last poll before reading stops may bring this many rows more than the queue should hold. They are kept: 4
# partitions of 1 MiB each hold 40,000 of the smallest queries (100 B). Rows beyond that are refused, to save memory.
OVERSHOOT_ROWS = 50_000
# The same in bytes: of 4 partitions, unpacked.
OVERSHOOT_BYTES = 64 << 20


def patience_us(objective_us: int) -> int:
    """Return how long a batch may take before the model counts as hung (us): 10 objectives, at least 5 s."""
    return max(MIN_PATIENCE_US, 10 * objective_us)


class Joint(NamedTuple):
    """A batch of several models that have one trunk.

    Attributes:
        rows: of all of them.
        objective_us: how long it may take: the least that is left to any of them.
        is_last: whether this model's part is the last, which is done when the batch is, and says how long that took.
    """

    rows: int
    objective_us: int
    is_last: bool


class Running(NamedTuple):
    """A batch that is being predicted, and in whose name it will be answered; a part of a joint one may be all."""

    take: Take[Asked]
    identity: Identity
    started_us: int
    joint: Joint | None = None


class Lane:
    """One version at work.

    Attributes:
        is_ready: its model can be asked.
        fault: why its rows fail at once; None = they are predicted.
        running: the batch that is with the model.
        trunk: digest of the one that its model shares, and with that what batches teach; "" = it shares none.
    """

    def __init__(
        self,
        codec: Codec,
        identity: Identity,
        batcher: Batcher[Asked],
        patience_us: int | None = None,
        beside: str = "",
        copy: int = 0,
    ) -> None:
        """Start with an empty queue and no model.

        Args:
            codec: for predictions.
            identity: goes into every record.
            batcher: holds the queue and sizes the batches.
            patience_us: after which the model counts as hung; None = as follows from the objective.
            beside: its label, if the version runs beside the one that serves: its figures carry the version.
            copy: of the version, which is asked.
        """
        self.is_ready = False
        self.fault: str | None = None
        self.running: Running | None = None
        self.trunk = ""
        self.batcher = batcher
        self.copy = copy
        self._patience_us = patience_us
        self._counters = Counters()
        self._durations = Durations("model", "model")
        self._beside = beside
        topic = topics.SHADOWS if beside == SHADOW else topics.MODEL_PREDICTIONS
        self._answering = AnswerWriter(codec, topic, identity)
        self._label = ("model", identity.model, *(("version", identity.version) if beside else ()))
        self._wait_until_us: int | None = None
        self._listening: tuple[int, int] | None = (
            None  # rows before the first time do not end the wait; the second does
        )
        self._now_us = 0

    @property
    def identity(self) -> Identity:
        """Who answers."""
        return self._answering.identity

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is being predicted."""
        return self.running is None and not len(self.batcher)

    @property
    def is_there(self) -> bool:
        """Whether its model can be asked beside the queue; whether a batch is with it now, its executor knows."""
        return self.is_ready and self.fault is None

    def patience_us(self, now_us: int) -> int:
        """Return after how long the model counts as hung."""
        return self._patience_us or patience_us(self.batcher.objective(now_us))

    def on_answered(self, rows: int, took_us: int, now_us: int) -> None:
        """Count rows that were read at a time, and all answered at once, beside the queue."""
        take: Take[Asked] = Take((), (), self.batcher.cap, 0, "eager")
        self._count(take, rows, {Outcome.OK: rows}, {}, took_us)
        self._durations.add(self.identity.model, [took_us] * rows, now_us + took_us)

    def next_start(self) -> int | None:
        """Return when `start` is to be called at the latest (us)."""
        if self.running is not None:
            return None
        return self._wait_until_us if self._listening is None else self._listening[1]

    def succeed(self, version: str, copy: int) -> None:
        """Ask this version from now on, and answer in its name; the running batch is answered in the old one's."""
        self._answering = replace(self._answering, identity=self.identity._replace(version=version))
        self.copy = copy
        self.recover()

    def recover(self) -> None:
        """Take that the model is loaded again: rows may be asked at once."""
        self.is_ready, self.fault, self._wait_until_us = True, None, None

    def offer(self, items: Sequence[tuple[int, Asked]], now_us: int, ranks: Mapping[int, int]) -> Effects:
        """Queue rows (due_us, row) that have just been fetched; rows without room expire.

        Args:
            items: the rows.
            now_us: the time.
            ranks: priorities by index, of those that have one.
        """
        refused = self.batcher.offer(items, now_us, ranks)
        if self._listening is not None and (now_us >= self._listening[0] or self.batcher.room_in_batch <= 0):
            self._listening = None
        if not refused:
            return []
        self.count("refused_total", len(refused))
        take = Take((), tuple(refused), self.batcher.cap, len(self.batcher))
        return self.unpredicted(take, Outcome.EXPIRED, now_us)

    def mirror(self, asked: Sequence[tuple[int, Asked]], now_us: int) -> None:
        """Queue copies of rows that another version answers, as far as there is room: no query depends on them."""
        copies: dict[int, RowSource] = {}
        items = []
        for due_us, row in asked[: max(0, self.batcher.room)]:
            source = copies.get(id(row.source))
            if source is None:  # one row more than there are: it is never the last, and completes nothing
                given = row.source
                source = copies[id(given)] = RowSource(
                    given.position, given.reply_partition, given.column, given.left + 1, given.step
                )
            items.append((due_us, row._replace(source=source)))
        self.offer(items, now_us, {})

    def start(self, now_us: int, number: Callable[[], int], *, is_vital: bool) -> Effects:
        """Give the model its next batch, if it is free and there is one; report the rows that have expired.

        Args:
            now_us: the time.
            number: returns the next batch's.
            is_vital: whether the role ends if the model hangs.
        """
        if self.running is not None or not len(self.batcher) or not (self.is_ready or self.fault):
            self._wait_until_us = None
            return []
        if self._listening is not None:
            if now_us < self._listening[1]:
                return []
            self._listening = None
        return self._fail(now_us) if self.fault is not None else self._start(now_us, number, is_vital=is_vital)

    def _start(self, now_us: int, number: Callable[[], int], *, is_vital: bool) -> Effects:
        take = self.batcher.take(now_us)
        self._wait_until_us = take.wait_until_us
        if not take.rows:
            return self.unpredicted(take, Outcome.EXPIRED, now_us) if take.expired else []
        return [self._asking(take, now_us, number, is_vital=is_vital)]

    def _asking(self, take: Take[Asked], now_us: int, number: Callable[[], int], *, is_vital: bool) -> Predict:
        """Return what has a batch predicted, which runs from now on."""
        self._now_us = now_us
        model, version, _ = self.identity
        patience, rows = self.patience_us(now_us), inputs_of(take.rows)
        self.running = Running(take, self.identity, now_us)  # last: what fails before runs nothing
        return Predict(number(), model, version, rows, patience, self.copy, take.queued, is_vital)

    def start_now(self, now_us: int, number: Callable[[], int], most: int, latest_us: int, whole: int) -> Effects:
        """Give the model its next batch, because a schedule says so; report what expires.

        Args:
            now_us: the time.
            number: returns the next batch's.
            most: rows.
            latest_us: when the batch has to start, by the estimate of who chose it.
            whole: rows of the batch that these are a part of; 0 = they are all of it.
        """
        take = self.batcher.take_now(now_us, most, latest_us, whole)
        if take.rows:
            return [self._asking(take, now_us, number, is_vital=False)]
        return self.unpredicted(take, Outcome.EXPIRED, now_us) if take.expired else []

    @property
    def expires_us(self) -> int | None:
        """When `expire` has something to do (us): its rows are not taken, as the host chooses others."""
        batcher = self.batcher
        return batcher.due_us(0) + batcher.spare_us if self.fault is None and len(batcher) else None

    def expire(self, now_us: int) -> Effects:
        """Give up the rows that cannot be in time any more, be there no other."""
        rows = bisect_right(self.batcher.dues_us, now_us - self.batcher.spare_us)
        return self.unpredicted(self.batcher.give_up(rows), Outcome.EXPIRED, now_us) if rows else []

    def refuse(self, rows: int, now_us: int, message: str) -> Effects:
        """Give up so many rows, those that are due first, because they cannot be in time."""
        self.count("refused_total", rows)
        return self.unpredicted(self.batcher.give_up(rows), Outcome.EXPIRED, now_us, message)

    def _fail(self, now_us: int) -> Effects:
        """Fail all waiting rows: there is no model."""
        effects: Effects = []
        self._wait_until_us = None
        while len(self.batcher):
            take = self.batcher.take(now_us)
            if take.rows:
                predicted = Predicted.failed(len(take.rows), self.fault or "")
                self.batcher.done(len(take.rows), 0, now_us)
                effects += self.answers(Running(take, self.identity, now_us), predicted, 0)
                continue
            self._wait_until_us = take.wait_until_us
            effects += self.unpredicted(take, Outcome.EXPIRED, now_us) if take.expired else []
            if take.wait_until_us is not None:
                break
        return effects

    def finish(self, took_us: int, now_us: int, *, is_blocking: bool, joint: Joint | None = None) -> Running:
        """Learn from how long the batch took, which may be a part of a joint one, and return it.

        After a batch that blocked reading, wait a moment for rows.
        """
        running, self.running = self.running, None
        if running is None:
            raise RuntimeError("a batch was finished twice, or never started")
        batcher, is_deaf = self.batcher, is_blocking and took_us > QUICK_US
        if joint is None:
            batcher.done(len(running.take.rows), took_us, now_us, deaf=is_deaf)
        elif joint.is_last:
            batcher.done(joint.rows, took_us, now_us, objective_us=joint.objective_us)
        if is_deaf and len(batcher) and batcher.room_in_batch > 0:
            self._listening = now_us + BREATH_US, now_us + min(LISTEN_US, took_us // 2)
        return running if joint is None else running._replace(joint=joint)

    def again(self, *, is_there: bool) -> None:
        """Queue the rows of the running batch again, for when the model is back: it was lost through another one."""
        running, self.running = self.running, None
        assert running is not None, "it has been started"
        self.is_ready = is_there
        self.batcher.put_back(running.take.rows + running.take.expired)

    def answers(self, running: Running, predicted: Predicted, took_us: int) -> Effects:
        """Turn a predicted batch into records; its expired rows go into the same ones."""
        take, identity, started_us, joint = running
        rows = len(take.rows)
        share_us = took_us if joint is None else took_us * rows // joint.rows
        self._count(take, rows, _outcomes(predicted), predicted.reasons, share_us)
        done_us = started_us + took_us
        self._durations.add(identity.model, [done_us - row.fetched_us for row in take.rows], done_us)
        answering = self._answering
        if identity is not answering.identity:
            answering = replace(answering, identity=identity)
        batch = DecidedBatch.of(take, predicted, started_us, took_us)
        return answering.records(batch if joint is None else batch._replace(rows=joint.rows))

    def unpredicted(self, take: Take[Asked], outcome: Outcome, now_us: int, message: str = "") -> Effects:
        """Answer all rows that a take gives up with one outcome."""
        self._counters["rows_total", *self._label, "outcome", outcome.value] += len(take.expired)
        return self._answering.records(DecidedBatch.unpredicted(take, outcome, now_us, message))

    def drop(self, partitions: frozenset[int]) -> None:
        """Drop the queued rows of these partitions."""
        self.batcher.forget(lambda asked: asked.source.position.partition in partitions)
        self._wait_until_us = self._listening = None

    def count(self, name: str, number: int) -> None:
        """Add to a counter of this version."""
        self._counters[name, *self._label] += number

    def statistics(self) -> Mapping[str, float]:
        """Return rows by outcome, batches by reason, and gauges of cap, queue and objective, all with the model."""
        return {
            **self._counters.rendered(),
            **({} if self._beside else self._durations.rendered() | self._wait()),
            render(("batch_cap", *self._label)): float(self.batcher.cap),
            render(("queue_rows", *self._label)): float(len(self.batcher)),
            render(("queue_bytes", *self._label)): float(self.batcher.bytes),
            render(("objective_us", *self._label)): float(self.batcher.objective(self._now_us)),
        }

    def _wait(self) -> dict[str, float]:
        """Return how long a row that came now would wait: what replicas are scaled by."""
        at_work = 0 if self.running is None else len(self.running.take.rows)
        return {render(("estimated_wait_seconds", *self._label)): self.batcher.wait_us(at_work) / 1e6}

    def _count(
        self, take: Take[Asked], rows: int, outcomes: Mapping[Outcome, int], reasons: Mapping[int, str], predict_us: int
    ) -> None:
        """Count a batch: of so many rows, by what became of them."""
        counters, label = self._counters, self._label
        for outcome, count in ((Outcome.OK, 0), *outcomes.items(), (Outcome.EXPIRED, len(take.expired))):
            counters["rows_total", *label, "outcome", outcome.value] += count
        for reason in reasons.values():
            counters["invalid_total", *label, "reason", reason] += 1
        counters["batches_total", *label, "reason", take.reason] += 1
        counters["batch_rows_total", *label] += rows
        counters["predict_us_total", *label] += predict_us


def _outcomes(predicted: Predicted) -> dict[Outcome, int]:
    """Count rows by outcome; those that are not OK one by one, as they are few: to hash an outcome takes a call."""
    found = {Outcome.OK: predicted.outcomes.count(Outcome.OK)}
    for outcome in predicted.outcomes:
        if outcome is not Outcome.OK:
            found[outcome] = found.get(outcome, 0) + 1
    return found


def lane_of(
    codec: Codec,
    identity: Identity,
    settings: WorkerSettings,
    batcher: Batcher[Asked] | None = None,
    *,
    beside: str = "",
    copy: int = 0,
) -> Lane:
    """Return the lane of a version, as the settings want it.

    Args:
        codec: for predictions.
        identity: goes into every record.
        settings: how it batches, and when it hangs.
        batcher: holds the queue; None = as the settings say.
        beside: its label, if the version runs beside the one that serves.
        copy: of the version, which is asked.
    """
    given_s = settings.patience_of(identity.model)
    patience_us = None if given_s is None else int(given_s * 1e6)
    if batcher is None:
        batcher = _batcher(settings, identity.model, beside)
    return Lane(codec, identity, batcher, patience_us, beside, copy)


def _batcher(settings: WorkerSettings, model: str, beside: str) -> Batcher[Asked]:
    controller = create_controller(settings.controller, settings.parameters)
    sizes = settings.allowed_batch_sizes.get(model)
    if sizes:
        controller = AllowedSizes(controller, sizes)
    is_bounded = beside == SHADOW
    return Batcher(
        controller,
        limit=settings.queue_rows + (0 if is_bounded else OVERSHOOT_ROWS),
        objective_us=settings.objective_us,
        limit_bytes=settings.queue_bytes + (0 if is_bounded else OVERSHOOT_BYTES),
        size=size_of,
    )
