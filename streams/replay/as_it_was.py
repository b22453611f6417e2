"""A trace as it was: the calls of its kernels again, on fresh ones, and what they write held against what was written.

calls ─▶ tapes ─▶ kernels ─▶ effects ─▶ topics, letters, states: the same bytes, or a difference with its place
           ├─ inputs   records that calls name by their positions
           └─ states   that they name by version: the fold of the observations
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observations
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.promotion.copies import Copies
from streams.replay.played import PlayedTape
from streams.replay.recording import TapeInputs
from streams.replay.report import ReplayReport
from streams.replay.states import FoldedStates
from streams.replay.untaped.run_again import run_again
from streams.replay.untaped.steps import WISHED, StepChecks
from streams.replay.written import WrittenTopics
from streams.runtime.process.gc_schedule import gc_less_often
from streams.tape.ends import ends_of
from streams.tape.reader import chunk_of
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.replay.recording import Recording
    from streams.replay.untaped.run_again import Running

# Topics whose records are counted for the report.
COUNTED: Final = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
# How far clocks may be apart: as far as a query may be ahead.
CLOCKS_US: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class RecordedDeployment:
    """What a replay must know of the deployment beside its records; tapes say themselves what their kernels were.

    Attributes:
        selection: settings of the role, for plays of what if.
        joiner: settings of the role.
        begun: partitions of `observations` that the trace has from the beginning; None = as their first records say.
        clocks_us: how far the clocks of those who wrote may have been apart.
        running: models that are at hand, by name and version: they answer again.
        copies_bytes: that the control role's ids of observations may take.
    """

    selection: SelectionSettings = field(default_factory=SelectionSettings)
    joiner: JoinerSettings = field(default_factory=JoinerSettings)
    begun: frozenset[int] | None = None
    clocks_us: int = CLOCKS_US
    running: Running = field(default_factory=dict)
    copies_bytes: int = 32 << 20


class AsItWas:
    """One replay.

    Args:
        trace: that is replayed.
        deployment: that it was recorded from.
        codec: of its records.
    """

    def __init__(self, trace: Recording, deployment: RecordedDeployment, codec: Codec) -> None:
        self._trace = trace
        self._deployment = deployment
        self._codec = codec
        self.report = ReplayReport()
        self._states = FoldedStates(trace, codec, deployment.joiner.memory_us, deployment.clocks_us)
        self._topics = WrittenTopics(trace, codec, self.report)
        self._tapes: dict[str, PlayedTape] = {}

    def run(self, tell: Callable[[ReplayReport], None] = lambda _: None) -> ReplayReport:
        """Replay all of it.

        Args:
            tell: is called now and then with what has been found so far.

        Raises:
            TraceError: the trace has no calls.
        """
        self.report.records.update({topic: sum(1 for _ in self._read(topic)) for topic in COUNTED})
        for record in self._read(topics.CALLS):
            self.report.records[topics.CALLS] += 1
            try:
                chunk = chunk_of(record.value)
            except DecodeError:
                self.report.undecodable[topics.CALLS] += 1
                continue
            self._tape(chunk.tape).take(chunk, record.timestamp_us)
            tell(self.report)
        if self._tapes:
            ends = {name: tape.end for name, tape in self._tapes.items()}
            self._topics.end(ends_of(ends, self._deployment.clocks_us))
        elif self._deployment.running or any(self._read(topics.PROMOTIONS)):
            self.report.unchecked["tapes_missing"] += 1
        else:
            raise TraceError(
                "the trace has no calls, so it can be played with something changed alone (--set); to have it replayed"
                " as it was, record with `record.calls: true` in the settings of the deployment"
            )
        self._check_steps()
        run_again(self._trace, self._codec, self._deployment.running, self.report)
        self._states.finish()
        self.report.states = self._states.states
        return self.report

    def _tape(self, name: str) -> PlayedTape:
        tape = self._tapes.get(name)
        if tape is None:
            tape = PlayedTape(name, self._codec, TapeInputs(self._trace), self._states, self._topics, self.report)
            self._tapes[name] = tape
        return tape

    def _check_steps(self) -> None:
        """Hold the steps of candidates against what the observations say; the control role writes no calls."""
        wished = [record for topic in WISHED for record in self._read(topic)]
        if not any(record.topic == topics.PROMOTIONS for record in wished):
            return
        copies = Copies(self._deployment.joiner.memory_us, self._deployment.copies_bytes)
        steps = StepChecks(self._codec, wished, copies, self._begun(), self.report)
        for record in self._read(topics.OBSERVATIONS):
            try:
                items = self._codec.decode(Observations, record.value).items
            except DecodeError:
                continue
            steps.take(record, items)
        steps.end()

    def _begun(self) -> frozenset[int]:
        """Return the partitions of the log that the trace has from the first record on, or that were empty."""
        if self._deployment.begun is not None:
            return self._deployment.begun
        numbers = range(self._deployment.joiner.partitions)
        return frozenset(number for number in numbers if _offset(self._read(topics.OBSERVATIONS, number)) == 0)

    def _read(self, topic: str, partition: int | None = None) -> Iterator[Record]:
        return self._trace.records(topic, partition) if topic in self._trace.topics() else iter(())


def _offset(records: Iterable[Record]) -> int:
    return next((record.offset for record in records), 0)


def replay(
    trace: Recording,
    deployment: RecordedDeployment,
    codec: Codec,
    tell: Callable[[ReplayReport], None] = lambda _: None,
) -> ReplayReport:
    """Replay a trace as it was.

    What is held is many and has no cycles: looking for them as often as usual took a fifth of the time.

    Raises:
        TraceError: the trace has no calls.
    """
    with gc_less_often():
        return AsItWas(trace, deployment, codec).run(tell)
