"""`turns`: the longest turn of the event loop at 10,000 queries a second, once millions of ids are known.

A kernel's call holds up all that shares its event loop for as long as it lasts. What may grow with time is in joiner
and learner, which remember ids to recognise copies. So those two are called here as their roles call them, without a
broker:

    growing   the learner reads back a log of so many observations, 64 a call, and remembers their ids
    traffic   then predictions and feedback come, 50 of each a call, as in 5 ms of 10,000 a second; they are joined and
              learnt, and the ids of all of them are remembered, too

A turn is measured in CPU time of its thread, which other programs do not lengthen. The longest one counts: no quantile
shows what happens once in a million ids.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from load.figures import SHOWN, Better, Figures, Kind, at_most
from load.research.harness.templates import ids
from load.results.results import Result
from load.scenario import Scenario
from policies.registry import create, spec
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Status,
)
from streams.operators.contract import Emit, FetchStates, Record
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner
from streams.runtime.process.gc_schedule import gc_less_often

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.harness.system import Stage
    from streams.operators.contract import Operator

    T = TypeVar("T")

NAME = "turns"
SECONDS = 30.0  # of traffic
RATE: Final = 10_000
_IDS, _SHORT_IDS = 10_000_000, 1_000_000
_TURN_US = 5_000  # of traffic in a call
_AT_ONCE = 64  # observations in a record of the log
_PARTITIONS = 4
_NOW_US = 1_700_000_000_000_000
_MODELS = ("logistic", "ridge")
_DECISION = Decision((0,), 0, "digits", spec(create("exp3")), _MODELS, (0.5, 0.5))

_TURN_MS = Kind("ms", Better.LOWER, 0.5, 1.0)
FIGURES = Figures(
    _TURN_MS("longest_ms", "growing_longest_ms", must=at_most(3)),
    _TURN_MS("p50_ms", "p999_ms", "growing_p50_ms"),
    SHOWN("ids", "queries"),
)


def thread_ns() -> int:
    """Return the CPU time of this thread (ns)."""
    return time.thread_time_ns()


@dataclass(slots=True)
class Turns:
    """Measures calls.

    Attributes:
        now_ns: the clock.
        taken_ms: how long each call took.
    """

    now_ns: Callable[[], int] = thread_ns
    taken_ms: list[float] = field(default_factory=list)

    def take(self, call: Callable[[], T]) -> T:
        """Call, and note how long it took."""
        started_ns = self.now_ns()
        result = call()
        self.taken_ms.append((self.now_ns() - started_ns) / 1e6)
        return result

    def figures(self, prefix: str = "", **points: float) -> dict[str, float]:
        """Return the longest call and these percentiles of all (ms)."""
        found = {f"{prefix}longest_ms": max(self.taken_ms)}
        values = np.percentile(self.taken_ms, list(points.values())).tolist()
        return found | {f"{prefix}{name}_ms": value for name, value in zip(points, values, strict=True)}


class Loop:
    """Joiner and learner of one application, and the log between them.

    Args:
        joiner: its kernel.
        learner: its kernel.
        known: observations in the log before anything is asked.
        seed: of the ids.
    """

    def __init__(self, joiner: Operator, learner: Operator, known: int, seed: int) -> None:
        self._joiner, self._learner, self._known = joiner, learner, known
        self._codec, self._ids = Codec(), ids(seed)
        self._offsets, self._time_us = dict.fromkeys((topics.PREDICTIONS, topics.FEEDBACK), 0), _NOW_US
        self._written = -(-known // _AT_ONCE)  # records of the log
        joiner.on_partitions(dict.fromkeys(range(_PARTITIONS), 0))
        learner.on_partitions(dict.fromkeys(range(_PARTITIONS), self._written))
        application = self._codec.encode(Application("digits", _MODELS, "exp3"))
        joiner.on_records([Record(topics.APPLICATIONS, 0, 0, _NOW_US, b"digits", application)], _NOW_US)

    def read_back(self, partition: int, turns: Turns) -> None:
        """Let the learner read its log from a window ago to where its states are."""
        for offset in range(-(-self._known // _AT_ONCE)):
            record = [self._log(partition, offset)]
            turns.take(partial(self._learner.on_records, record, _NOW_US))

    def traffic(self, count: int, turns: Turns) -> int:
        """Let so many queries be answered, told, joined and learnt; returns in which partition they are learnt."""
        partition, at_once = 0, RATE * _TURN_US // 1_000_000
        for start in range(0, count, at_once):
            self._time_us += _TURN_US
            records = self._asked(min(at_once, count - start))
            for record in self._joined(records, turns):
                partition = record.partition
                self._learnt(record, turns)
        return partition

    def _joined(self, records: Sequence[Record], turns: Turns) -> list[Record]:
        effects = turns.take(partial(self._joiner.on_records, records, self._time_us))
        written = [each for each in effects if isinstance(each, Emit) and each.topic == topics.OBSERVATIONS]
        found = []
        for emit in written:
            found.append(Record(emit.topic, emit.partition, self._written, self._time_us, emit.key, emit.value))
            self._written += 1
        return found

    def _learnt(self, record: Record, turns: Turns) -> None:
        effects = turns.take(partial(self._learner.on_records, [record], self._time_us))
        for wanted in [each for each in effects if isinstance(each, FetchStates)]:
            self._learner.on_states(dict.fromkeys(wanted.keys), self._time_us)

    def _log(self, partition: int, offset: int) -> Record:
        """Return a record of the log that has been learnt; the oldest is as old as the traffic before it takes."""
        rows = min(_AT_ONCE, self._known - offset * _AT_ONCE)
        at_us = _NOW_US - (self._known - offset * _AT_ONCE) * 1_000_000 // RATE
        seen = tuple(
            Observation(name.decode(), "digits", None, _DECISION, (0.0, None), 0.0, 3, JoinStatus.JOINED, at_us, at_us)
            for name in islice(self._ids, rows)
        )
        value = self._codec.encode(Observations(seen))
        return Record(topics.OBSERVATIONS, partition, offset, at_us, b"digits", value)

    def _asked(self, count: int) -> list[Record]:
        """Return predictions, and then feedback on them."""
        names = list(islice(self._ids, count))
        predictions = [self._record(topics.PREDICTIONS, row, name) for row, name in enumerate(names)]
        return [*predictions, *(self._record(topics.FEEDBACK, row, name) for row, name in enumerate(names))]

    def _record(self, topic: str, row: int, key: bytes) -> Record:
        self._offsets[topic] += 1
        about = _prediction if topic == topics.PREDICTIONS else _feedback
        value = self._codec.encode(about(key.decode(), self._time_us))
        return Record(
            topic, row * _PARTITIONS // (RATE * _TURN_US // 1_000_000), self._offsets[topic], self._time_us, key, value
        )


def _prediction(name: str, now_us: int) -> Prediction:
    outputs = (ModelOutput(_MODELS[0], "1", Outcome.OK, 3),)
    times = now_us - 2_000, now_us - 1_000, now_us + 98_000, now_us
    return Prediction(name, "digits", None, _DECISION, Status.COMPLETE, None, 3, 1.0, outputs, *times)


def _feedback(name: str, now_us: int) -> Feedback:
    return Feedback(name, label=3, sent_us=now_us)


async def run(stage: Stage) -> Result:
    """Grow, then go on."""
    known, queries = _SHORT_IDS if stage.short else _IDS, int(RATE * stage.seconds)
    figures = await asyncio.to_thread(measure, known, queries, stage.seed)
    return Result(
        NAME,
        figures=figures,
        parameters={"form": stage.form, "rate": RATE, "seconds": stage.seconds, "seed": stage.seed},
    )


def measure(known: int, queries: int, seed: int, now_ns: Callable[[], int] = thread_ns) -> dict[str, float]:
    """Return the figures of a loop that knows so many ids and then is asked so many queries."""
    codec, growing, turns = Codec(), Turns(now_ns), Turns(now_ns)
    loop = Loop(Joiner(codec, JoinerSettings(_PARTITIONS)), Learner(codec), known, seed)
    with gc_less_often():
        loop.read_back(loop.traffic(1, Turns()), growing)
        loop.traffic(queries, turns)
    return {
        **growing.figures("growing_", p50=50),
        **turns.figures(p50=50, p999=99.9),
        "ids": float(known),
        "queries": float(queries),
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the longest turn of the event loop at 10,000 queries/s, once joiner and learner know ten million ids",
    seconds=SECONDS,
    short=True,
    offline=True,
)
