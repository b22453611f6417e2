"""Carries candidates from step to step: reads wishes, past steps and observations, and lets the kernel judge.

What the serving policies cost is folded along, and what every canary and shadow does, whether they are candidates or
not.

A timer of Faust's runs it, not an agent on these topics: an agent's group would go on behind what it has committed, and
a restart must fold the observations since each wish again. So it follows the topics outside any group.

    candidates, promotions ──▶ Lifecycle ◀── observations of the last minutes, or since the first wish ──▶ Serving
    models, applications ───▶ Rivals ◀──────────┘
                                   │ step
                                   ▼
         Deployment: changes what is wanted, then writes the step to `promotions`, which comes back here

A crash between the two repeats the step: it changes nothing the second time, and is written then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Candidate, Model, Observations, Promotion
from streams.control.carry.fairly import fairly
from streams.control.history import STEP_US, STEPS
from streams.operators.ids import ID_BYTES
from streams.promotion.copies import Copies
from streams.promotion.guardrails import guardrails
from streams.promotion.hindrance import Heard, hindrance
from streams.promotion.lifecycle import Lifecycle, step
from streams.promotion.measurements import ComparableMeasurements
from streams.promotion.rivals import Rivals
from streams.promotion.serving_losses import ServingLosses
from streams.promotion.verdict import Action, Verdict
from streams.runtime.errors import BrokerUnavailableError, StoppedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Observation
    from streams.operators.contract import Record
    from streams.promotion.lifecycle import Course
    from streams.promotion.serving_losses import Served
    from streams.promotion.verdict import CandidateStage
    from streams.runtime.ports import Broadcast

    # Follows topics from a time on (us); None = from the beginning.
    Follow: TypeAlias = Callable[[Sequence[str], int | None], Broadcast]
    # Measures the candidates: values by key and name.
    Guards: TypeAlias = Callable[[], Mapping[str, Mapping[str, float]]]

_log = logging.getLogger(__name__)

# Steps that are kept to be shown.
SHOWN = 50
# How far back what serving policies cost is read at first: as far as the page's other charts reach.
BACK_US = STEPS * STEP_US
# How far back what canaries and shadows cost is read at first.
RIVALS_BACK_US = 3_600_000_000
# How long a candidate may go without a comparison before that is told.
PATIENCE_US = 60_000_000
# Polls in one tick: the page gets its turn in between.
_POLLS = 50
_STOP_S = 2.0


class DesiredState(Protocol):
    """What is wanted of the deployment; called in a thread."""

    def fault_of(self, plan: Candidate, stage: CandidateStage, due: Promotion | None) -> str:
        """Say what somebody has changed so that a candidate is no longer where its last step left it; empty = nothing.

        Args:
            plan: of the candidate.
            stage: where its last step left it.
            due: the step that it should take now; who stands where that leads has taken it, but has not written it.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...

    def take(self, plan: Candidate, step: Promotion) -> str:
        """Change what is wanted as a step says, and write the step; say why it never can be; empty = it is done.

        Raises:
            BrokerUnavailableError: take it again later.
        """
        ...

    def end(self, step: Promotion) -> None:
        """Write the step that ends a candidate: a version's shares stay as they are, an apprentice learns no more.

        Raises:
            BrokerUnavailableError: end it again later.
        """
        ...


class Promoting:
    """The candidates of a deployment, and who carries them on.

    Args:
        follow: follows topics.
        codec: of the records.
        window_us: how long copies of an observation may follow; the learner's.
        ids_bytes: that the ids may take by which they are recognised.
        deployment: what steps change.
        prepare: is awaited before wishes and applications are taken: it tries what policies they name.

    Attributes:
        steps: the last ones, the newest last.
    """

    def __init__(
        self,
        follow: Follow,
        codec: Codec,
        window_us: int,
        ids_bytes: int,
        deployment: DesiredState,
        prepare: Callable[[Sequence[Record]], Awaitable[None]] | None = None,
    ) -> None:
        self._follow = follow
        self._codec = codec
        self._window_us = window_us
        self._ids_bytes = ids_bytes
        self._deployment = deployment
        self._prepare = prepare
        self._lifecycle = Lifecycle(window_us)
        self._rivals = Rivals()
        self._applications: dict[str, Application] = {}
        self._heard: dict[str, tuple[Candidate, Heard]] = {}  # by key of the candidate
        self._hindrances: dict[str, str] = {}  # likewise
        self._serving = ServingLosses()
        self._copies = Copies(window_us, ids_bytes)
        self._measurements = ComparableMeasurements(codec, self._copies)
        self._forgotten = 0  # by earlier ones
        self._wishes: Broadcast | None = None
        self._log: Broadcast | None = None
        self._must_reread = False
        self._next: dict[int, int] = {}  # by partition of the log: behind the last observation that was folded
        self.steps: list[Promotion] = []

    @property
    def courses(self) -> Mapping[str, Course]:
        """The candidates that are under way, by key."""
        return self._lifecycle.courses

    @property
    def rivals(self) -> Rivals:
        """The versions beside those that serve, with what they cost."""
        return self._rivals

    @property
    def hindrances(self) -> Mapping[str, str]:
        """Why candidates cannot be compared, by key."""
        return self._hindrances

    @property
    def served(self) -> Mapping[str, Served]:
        """What the policies that serve cost, by application."""
        return self._serving.applications

    @property
    def forgotten(self) -> int:
        """Ids that had to be forgotten before their time: a copy of such an observation counts once more."""
        return self._forgotten + self._copies.forgotten

    def statistics(self) -> Mapping[str, float]:
        """Return what the ids take, and how many were forgotten before their time."""
        return {
            "ids_bytes": float(self._copies.held * ID_BYTES),
            "ids_bytes_limit": float(self._ids_bytes),
            "ids_forgotten_total": float(self.forgotten),
        }

    async def tick(self, now_us: int, guards: Guards, may_go: Callable[[], bool] = lambda: True) -> None:
        """Read what is new and take the steps that follow; while Kafka is away nothing happens.

        Args:
            now_us: the time.
            guards: measures each candidate, once all is known: values by key and name.
            may_go: whether observations may be folded and steps taken just now; it is asked between turns.
        """
        try:
            if await self._read_wishes() and await self._read_observations(now_us, may_go) and may_go():
                self._look_for_hindrances(now_us)
                await self._step(now_us, guards())
        except (BrokerUnavailableError, StoppedError) as fault:
            _log.warning("candidates wait: %s", fault)
            await self.stop()

    async def stop(self) -> None:
        """Follow nothing any more; what has been folded is folded again."""
        for reader in (self._wishes, self._log):
            if reader is not None:
                await reader.stop(_STOP_S)
        self._wishes = self._log = None

    async def _read_wishes(self) -> bool:
        """Take wishes and past steps; tell whether all that were there are known."""
        if self._wishes is None:
            self._lifecycle, self._rivals = Lifecycle(self._window_us), Rivals()
            self._applications.clear()
            self.steps.clear()
            followed = topics.CANDIDATES, topics.PROMOTIONS, topics.MODELS, topics.APPLICATIONS
            self._wishes = self._follow(followed, None)
            await self._wishes.start()
        before = {key: course.plan for key, course in self.courses.items()}
        async for records in _polls(self._wishes):
            if self._prepare is not None:
                await self._prepare(records)
            async for record in fairly(records):
                self._take(record)
        if any(before.get(key) != course.plan for key, course in self.courses.items()):
            self._must_reread = True  # of a new wish the first observations have gone by
        return self._wishes.caught_up

    def _take(self, record: Record) -> None:
        key = (record.key or b"").decode("utf-8", "replace")
        try:
            if record.topic == topics.MODELS:
                self._deployed(key, record)
            elif record.topic == topics.APPLICATIONS:
                self._applications.pop(key, None)
                if record.value is not None:
                    self._applications[key] = self._codec.decode(Application, record.value)
            elif record.topic == topics.PROMOTIONS:
                taken = self._codec.decode(Promotion, record.value)
                self._lifecycle.past(taken)
                self.steps = [*self.steps, taken][-SHOWN:]
            elif record.value is None:
                self._lifecycle.wish(key, None)
            else:
                self._lifecycle.wish(key, self._codec.decode(Candidate, record.value))
        except DecodeError as error:
            _log.warning("skipped a record of %s: %s", record.topic, error)

    def _deployed(self, key: str, record: Record) -> None:
        if topics.MODEL_VERSION not in key:  # else it is known, and need not serve
            model = None if record.value is None else self._codec.decode(Model, record.value)
            self._rivals.deployed(key, model, record.timestamp_us)

    def _look_for_hindrances(self, now_us: int) -> None:
        """Find out why candidates cannot be compared; what is new is logged."""
        found: dict[str, str] = {}
        for key, course in self.courses.items():
            plan, stage = course.plan, course.stage
            if stage is None or course.comparison.evidence(plan.alpha).pairs:
                continue
            why = hindrance(plan, self._applications.values(), stage.share) if self._applications else ""
            if not why and now_us - max(stage.since_us, course.from_us) > PATIENCE_US:
                known = self._heard.get(key)
                why = (Heard(plan) if known is None else known[1]).lacks
            if why:
                found[key] = why
                if why != self._hindrances.get(key):
                    _log.warning("%s %s cannot be compared with %s: %s", key, plan.candidate, plan.incumbent, why)
        self._hindrances = found

    async def _read_observations(self, now_us: int, may_go: Callable[[], bool]) -> bool:
        """Fold observations; tell whether all that were there have been."""
        if self._log is not None and self._must_reread:
            await self._log.stop(_STOP_S)
            self._log = None
        if self._log is None:
            since_us = self._fold_again(now_us)
            self._next.clear()
            self._log, self._must_reread = self._follow((topics.OBSERVATIONS,), since_us), False
            await self._log.start()
        async for records in _polls(self._log):
            async for record in fairly(records, may_go):
                self._observe(record)
        return self._log.caught_up

    def _fold_again(self, now_us: int) -> int:
        """Forget the observations; returns since when they come again."""
        self._forgotten = self.forgotten
        self._copies, self._serving = Copies(self._window_us, self._ids_bytes), ServingLosses()
        self._measurements = ComparableMeasurements(self._codec, self._copies)
        self._lifecycle.fold_again()
        self._rivals.fold_again()
        self._heard = {}
        back_us = min(now_us - BACK_US, self._rivals.since_us(now_us - RIVALS_BACK_US))
        return min([back_us, *(course.from_us for course in self.courses.values())])

    def _observe(self, record: Record) -> None:
        self._next[record.partition] = record.offset + 1
        try:
            several = self._codec.decode(Observations, record.value).items
        except DecodeError:
            return  # the learner makes a dead letter of it
        for seen in several:
            if not self._copies.has(seen.query_id, record.timestamp_us, record.partition):
                self._lifecycle.observe(seen, record.timestamp_us)
                self._rivals.observe(seen, record.timestamp_us)
                self._hear(seen, record.timestamp_us)
                self._serving.observe(seen, record.timestamp_us)
        for measured in self._measurements.take(record, has_observations=bool(several)):
            self._lifecycle.measure(measured, record.timestamp_us)

    def _hear(self, seen: Observation, timestamp_us: int) -> None:
        """Count what candidates without a comparison could be compared by."""
        for key, course in self.courses.items():
            plan, heard = self._heard.get(key, (None, None))
            if plan != course.plan or heard is None:
                plan, heard = self._heard[key] = course.plan, Heard(course.plan)
            if timestamp_us >= course.from_us:
                heard.take(seen)

    async def _step(self, now_us: int, guards: Mapping[str, Mapping[str, float]]) -> None:
        steps = self._lifecycle.steps(now_us, guards, self._offsets())
        due = {topics.candidate(each.kind, each.name): each for each in steps}
        for key, course in [*self.courses.items()]:
            taken, fault = due.get(key), ""
            if course.stage is not None:
                fault = await asyncio.to_thread(self._deployment.fault_of, course.plan, course.stage, taken)
            if taken is not None and not fault:
                fault = await asyncio.to_thread(self._deployment.take, course.plan, taken)
            if fault:
                await self._end(key, course, fault, now_us)
            elif taken is not None:
                _log.info("%s %s: %s, share %g: %s", *taken[1:3], taken.action, taken.share, taken.reason)
                self._lifecycle.past(taken)  # it comes back as a record, too, and changes nothing then
                # What counts now may have been folded already: a restart would fold it again, so this does, too.
                self._must_reread |= taken.action == Action.PROMOTE.value

    async def _end(self, key: str, course: Course, fault: str, now_us: int) -> None:
        share = course.stage.share if course.stage is not None else 0.0
        evidence = course.comparison.evidence(course.plan.alpha)
        metrics = guardrails(course.plan, course.comparison).metrics
        verdict = Verdict(Action.END, share, fault)
        ended = step(course.plan, verdict, evidence, now_us, offsets=self._offsets(), metrics=metrics)
        _log.warning("%s is on its way no more: %s", key, fault)
        await asyncio.to_thread(self._deployment.end, ended)
        self._lifecycle.past(ended)

    def _offsets(self) -> tuple[int, ...]:
        return tuple([self._next.get(number, 0) for number in range(max(self._next, default=-1) + 1)])


async def _polls(reader: Broadcast) -> AsyncIterator[list[Record]]:
    """Yield what has come, poll by poll, as much as one tick takes."""
    for _ in range(_POLLS):
        polled = await reader.poll(0 if reader.caught_up else 200)
        if not polled and reader.caught_up:
            return
        yield polled
