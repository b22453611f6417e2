"""Sends one stretch of load to a running deployment and records it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.harness import arrivals
from load.harness.aggregates import drain_rate
from load.harness.flood import drain, flood, make
from load.harness.gc_off import frozen
from load.harness.openloop import OpenLoop
from load.harness.probes import Learning, nothing_learnt
from load.harness.processes import Usage, cpu_seconds, listening, rest, total_cpu_s, usage
from load.harness.recorder import Recorder
from load.harness.topics import delete, stamp_on_append
from load.harness.wire import Wire, linger_ms
from schemas import topics
from schemas.codec import Codec
from schemas.records import Status
from schemas.sizes import MOST_BYTES
from streams.client import Client
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from load.harness.flood import Drained, Made, Taken
    from load.harness.openloop import Workload
    from load.harness.system import Deployment, Stage, System
    from schemas.records import Prediction, Tensor

FAULTS_OF_A_STRETCH = ("lost", "duplicates", "defaults", "late")
_BACKLOG_LINGER_MS = 5.0
_GREETINGS = 10  # an application may let a query wait for ten of its objectives alone
_GREETING_MS = 10_000.0  # the first query waits for caches, and for states to be read
# After the last answer its feedback is joined and learnt, which is part of the cost. That is over when all processes
# together have used this little for so long; they commit twice a second.
_QUIET_S, _QUIET_CORES, _LEARN_S = 1.0, 0.2, 60.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """The result of one stretch of load.

    Attributes:
        recorder: has every query and answer.
        cpu_s: of each instance meanwhile.
        feedback_sent: how many answers got feedback.
        read_us: when the answers to a backlog were read; empty for any other.
        appended_us: when the broker had them.
        learnt_us: when all feedback on a backlog was learnt and committed; 0 where there was none.
        broker_cpu_s: of the broker meanwhile; 0 where it is on another machine.
    """

    recorder: Recorder
    cpu_s: Mapping[str, float]
    feedback_sent: int
    read_us: Sequence[int] = ()
    appended_us: Sequence[int] = ()
    learnt_us: int = 0
    broker_cpu_s: float = 0.0

    @property
    def answered_per_s(self) -> float:
        """Answers to a backlog a second, from its first query until the broker had 95 % of them."""
        return drain_rate(self.appended_us, self.recorder.start_us, self.recorder.total.sent)

    @property
    def learnt_per_s(self) -> float:
        """Queries of a backlog a second, from the first until all feedback was learnt and committed; 0 without any."""
        return self.feedback_sent / max(1, self.learnt_us - self.recorder.start_us) * 1e6 if self.learnt_us else 0.0

    @property
    def cpu_us_per_query(self) -> float:
        """CPU of all roles together, for each answered query (us)."""
        return sum(self.cpu_s.values()) / max(1, self.recorder.total.answered) * 1e6

    @property
    def broker_cpu_us_per_query(self) -> float:
        """CPU of the broker for each answered query (us), that for the client among it."""
        return self.broker_cpu_s / max(1, self.recorder.total.answered) * 1e6

    @property
    def faults(self) -> dict[str, float]:
        """How many queries were lost, answered twice, with the default output, or late."""
        counted = self.recorder.figures()
        return {name: counted[name] for name in FAULTS_OF_A_STRETCH}


@dataclass(frozen=True, slots=True)
class Driver:
    """Sends to one deployment.

    Attributes:
        stage: where.
        prefix: of the deployment.
        system: whose processes are measured.
    """

    stage: Stage
    prefix: str
    system: System

    async def greet(self, application: str, row: Tensor) -> None:
        """Ask once, as a user does, before any load: what is not in place is found here, and said.

        Raises:
            LookupError: the answer is the default output.
        """
        async with Client(self.stage.bootstrap, self.prefix, self.stage.properties) as client:
            for _ in range(_GREETINGS):
                answer = await client.predict(application, row, slo_ms=_GREETING_MS, timeout_s=2 * _GREETING_MS / 1e3)
                if answer.status is not Status.DEFAULT:
                    return
        raise LookupError(f"{application} answers its default output ({answer.reason}); see the logs of its roles")

    async def at(
        self,
        rate: float,
        workload: Workload,
        seconds: float,
        slo_us: int = 100_000,
        on_predictions: Callable[[Sequence[Prediction]], None] | None = None,
        turn: int = 0,
        drain_s: float = 5.0,
    ) -> Stretch:
        """Send the stage's arrivals at `rate` a second for `seconds`; those of another `turn` come at other times."""
        offsets_us = arrivals.until(self.stage.arrivals.at(rate, self.stage.seed + turn), seconds)
        return await self.drive(offsets_us, workload, slo_us, on_predictions, drain_s, linger_ms(rate))

    async def backlog(
        self,
        count: int,
        workload: Workload,
        drain_s: float,
        on_predictions: Callable[[Sequence[Prediction]], None] | None = None,
    ) -> Stretch:
        """Send `count` queries at once; their objective (in the workload) must be longer than they will wait.

        Args:
            count: queries; they are made before anything is measured.
            workload: makes them, and knows their labels, if there is to be feedback.
            drain_s: how long it may take.
            on_predictions: called with all first answers when the last one has come.
        """
        queries = await asyncio.to_thread(make, workload, Codec(), count, SystemClock().now_us())
        stamp_on_append(self.stage.bootstrap, f"{self.prefix}.{topics.PREDICTIONS}")
        truths = sum(made.feedback is not None for made in queries)
        learning = await asyncio.to_thread(Learning, self.stage, self.prefix) if truths else None
        broker = listening(self.stage.bootstrap)
        before, broker_before_s = usage(self.system.pids), total_cpu_s(broker)
        learnt = asyncio.to_thread(learning.over_us, truths, drain_s + _LEARN_S) if learning else nothing_learnt()
        flooded = asyncio.to_thread(self._flood, queries, drain_s)
        learnt_us, (recorder, taken) = await asyncio.gather(learnt, flooded)
        if on_predictions is not None:
            on_predictions(taken.predictions)
        await self._quiet()
        return Stretch(
            recorder,
            cpu_seconds(before, self._after(before)),
            taken.feedback_sent,
            taken.read_us,
            taken.appended_us,
            learnt_us,
            total_cpu_s(broker) - broker_before_s,
        )

    async def drain(self, count: int, workload: Workload, limit_s: float) -> Drained:
        """Send `count` queries at once, without feedback, and leave the machine to the system till all are answered."""
        queries = await asyncio.to_thread(make, workload, Codec(), count, SystemClock().now_us())
        stamp_on_append(self.stage.bootstrap, f"{self.prefix}.{topics.PREDICTIONS}")
        with self._wire(_BACKLOG_LINGER_MS) as wire:
            return await asyncio.to_thread(drain, queries, wire, SystemClock().now_us, limit_s)

    async def drive(
        self,
        offsets_us: Iterable[int],
        workload: Workload,
        slo_us: int,
        on_predictions: Callable[[Sequence[Prediction]], None] | None = None,
        drain_s: float = 5.0,
        linger_ms: float = 0,
    ) -> Stretch:
        """Send by any arrivals, return feedback where the workload knows labels, wait for the last answers."""
        before = usage(self.system.pids)
        recorder, feedback_sent = await asyncio.to_thread(
            self._drive, offsets_us, workload, slo_us, on_predictions, drain_s, linger_ms
        )
        await self._quiet()
        return Stretch(recorder, cpu_seconds(before, self._after(before)), feedback_sent)

    async def _quiet(self) -> None:
        """Wait until the system has nothing left to do."""
        await asyncio.to_thread(rest, lambda: self.system.pids, cores=_QUIET_CORES, look_s=_QUIET_S, limit_s=_LEARN_S)

    def _flood(self, queries: Sequence[Made], drain_s: float) -> tuple[Recorder, Taken]:
        with self._wire(_BACKLOG_LINGER_MS) as wire:
            now_us = SystemClock().now_us
            recorder = Recorder(now_us(), int(drain_s * 1e6))
            return recorder, flood(queries, wire, Codec(), recorder, now_us, drain_s)

    def _wire(self, linger_ms: float) -> closing[Wire]:
        wire = Wire(self.stage.bootstrap, self.prefix, self.stage.properties, linger_ms)
        wire.follow((topics.PREDICTIONS,))
        return closing(wire)

    def _drive(
        self,
        offsets_us: Iterable[int],
        workload: Workload,
        slo_us: int,
        on_predictions: Callable[[Sequence[Prediction]], None] | None,
        drain_s: float,
        linger_ms: float,
    ) -> tuple[Recorder, int]:
        with frozen(), self._wire(linger_ms) as wire:
            now_us = SystemClock().now_us
            recorder = Recorder(now_us(), slo_us)
            loop = OpenLoop(
                wire, Codec(max_bytes=MOST_BYTES), workload, recorder, now_us, on_predictions=on_predictions
            )
            loop.run(offsets_us, drain_s)
        return recorder, loop.feedback_sent

    def _after(self, before: Mapping[str, Usage]) -> dict[str, Usage]:
        pids = self.system.pids
        return usage({name: pids[name] for name in before})


@asynccontextmanager
async def deployed(stage: Stage, deployment: Deployment, row: Tensor | None = None) -> AsyncIterator[Driver]:
    """Run a deployment for the time of a block, and delete its topics unless that fails.

    Args:
        stage: where.
        deployment: what.
        row: with which each application is greeted, if any.
    """
    async with stage.launch(deployment) as system:
        driver = Driver(stage, deployment.prefix, system)
        if row is not None:
            for application in deployment.applications:
                await driver.greet(application.name, row)
        yield driver
    delete(stage.bootstrap, deployment.prefix)
