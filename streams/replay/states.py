"""The policy states that kernels have read: each is the fold of the observations, and columns have drawn by them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from policies import draw, registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observations, Prediction
from streams.operators.contract import StateKey
from streams.operators.ids import SeenIds
from streams.operators.learn.bounds import LessonCounts
from streams.operators.learn.fold import taught
from streams.operators.policy_state import numbers, state_of
from streams.operators.selection.state_view import arms_of
from streams.replay.recording import MissingInputError
from streams.tape.writer import checksum
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.codec import Codec
    from schemas.records import Decision, PolicyState
    from streams.operators.contract import Emit, Record
    from streams.operators.selection.state_view import Arms
    from streams.replay.recording import Recording
    from streams.replay.report import ReplayReport
    from streams.tape.calls import StateMark

# Numbers in all versions together that are kept, 32 bytes each: 256 MiB. The oldest are let go of.
_NUMBERS: Final = 8_000_000
# What a version takes beside its numbers, as numbers.
_VERSION_NUMBERS: Final = 16
# How much later than it was read a lesson may be dated that a state has had: clocks disagree.
_LATER_US: Final = 60_000_000


class FoldedStates:
    """Every version of every state, folded as far as it is asked for.

    Args:
        trace: with the observations.
        codec: of its records.
        window_us: how long the learner remembers ids.
        clocks_us: how far the clocks of those who wrote may have been apart, where that is more than a minute.

    Attributes:
        states: as they are after what was folded.
    """

    def __init__(self, trace: Recording, codec: Codec, window_us: int, clocks_us: int = 0) -> None:
        self._trace = trace
        self._later_us = max(_LATER_US, clocks_us)
        self._codec = codec
        self._window_us = window_us
        self._partitions: dict[int, FoldedPartition] = {}
        self._versions: dict[tuple[StateKey, int], tuple[PolicyState, ...]] = {}
        self._numbers = 0
        self.states: dict[StateKey, PolicyState] = {}

    def find(self, key: StateKey, mark: StateMark, until_us: int) -> tuple[PolicyState, bool]:
        """Return a state, and whether it is the one that is meant; if not, it is of the same version.

        Raises:
            MissingInputError: there is no such version, as far as the trace has the observations.
        """
        partition = self._partition(key.partition)
        while (found := self._at_hand(key, mark)) is None:
            record = partition.next(until_us + self._later_us)
            if record is None:
                known = self._versions.get((key, mark.version))
                if known is None:
                    raise MissingInputError(f"version {mark.version} of {key.name}")
                return known[-1], False
            self._fold(key.partition, partition, record)
        return found, True

    def begins(self, number: int) -> bool:
        """Tell whether the trace has a partition's observations from the first one on."""
        return self._partition(number).is_whole

    def finish(self) -> None:
        """Fold all that is left, of all partitions that anybody asked about."""
        for number in sorted({record.partition for record in self._all()}):
            partition = self._partition(number)
            while (record := partition.next()) is not None:
                self._fold(number, partition, record)

    def _all(self) -> Iterator[Record]:
        return self._trace.records(topics.OBSERVATIONS) if topics.OBSERVATIONS in self._trace.topics() else iter(())

    def _partition(self, number: int) -> FoldedPartition:
        found = self._partitions.get(number)
        if found is None:
            is_there = topics.OBSERVATIONS in self._trace.topics()
            records = self._trace.records(topics.OBSERVATIONS, number) if is_there else iter(())
            found = self._partitions[number] = FoldedPartition(records, SeenIds(self._window_us))
        return found

    def _at_hand(self, key: StateKey, mark: StateMark) -> PolicyState | None:
        known = self._versions.get((key, mark.version), ())
        return next((one for one in reversed(known) if checksum(self._codec.encode(one)) == mark.checksum), None)

    def _fold(self, number: int, partition: FoldedPartition, record: Record) -> None:
        """Fold a record's observations; what cannot be learnt from leaves the states, as it does the learner's."""
        try:
            items = self._codec.decode(Observations, record.value).items
        except DecodeError:
            return
        for seen in items:
            reach = partition.counts.reach(seen, record.timestamp_us)
            if not partition.is_whole or not partition.seen.add(seen.query_id, record.timestamp_us):
                continue
            try:
                changed = taught(partition.states, seen, record.timestamp_us, self._window_us, reach)
            except PolicyError:
                continue
            partition.states.update(changed)
            self._keep(number, changed)

    def _keep(self, number: int, changed: Mapping[str, PolicyState]) -> None:
        for name, state in changed.items():
            key = StateKey(number, name)
            self.states[key] = state
            self._versions[key, state.version] = (*self._versions.get((key, state.version), ()), state)
            self._numbers += numbers(state) + _VERSION_NUMBERS
        while self._numbers > _NUMBERS:
            gone = self._versions.pop(*islice(self._versions, 1))
            self._numbers -= sum(numbers(state) + _VERSION_NUMBERS for state in gone)


class FoldedPartition:
    """The observations of one partition that are still to be folded, and the states as they are before these."""

    __slots__ = ("_ahead", "_records", "counts", "is_whole", "seen", "states")

    def __init__(self, records: Iterator[Record], seen: SeenIds) -> None:
        self._records = records
        self._ahead = next(records, None)
        self.seen = seen
        self.counts = LessonCounts()
        self.states: dict[str, PolicyState | None] = {}
        self.is_whole = self._ahead is None or self._ahead.offset == 0

    def next(self, until_us: int | None = None) -> Record | None:
        """Return the next record; None if there is none up to that time."""
        record = self._ahead
        if record is None or (until_us is not None and record.timestamp_us > until_us):
            return None
        self._ahead = next(self._records, None)
        return record


# Versions of one state that are kept: a decision goes by one of the last that were read.
_VERSIONS = 8


class ColumnDraws:
    """Checks decisions of columns.

    Args:
        codec: of the trace's records.
        report: that is told what differs.
    """

    def __init__(self, codec: Codec, report: ReplayReport) -> None:
        self._codec = codec
        self._report = report
        self._states: dict[str, list[PolicyState | None]] = {}
        self._arms: tuple[Decision | None, Arms | None] = None, None

    def know(self, states: Mapping[StateKey, PolicyState | None]) -> None:
        """Take states that selection has read."""
        for key, state in states.items():
            known = self._states.setdefault(key.name, [])
            known.append(state)
            del known[:-_VERSIONS]

    def check(self, emit: Emit) -> None:
        """Check the decision of an answer that columns have written."""
        if emit.topic != topics.PREDICTIONS:
            return
        prediction = self._codec.decode(Prediction, emit.value)
        decision = prediction.decision
        arms = None if decision is None or decision.features else self._arms_of(decision)
        if arms is None or decision is None:
            return
        drawn = arms.decide(draw.uniform(prediction.query_id)).decision
        if (drawn.chosen, drawn.propensities) != (decision.chosen, decision.propensities):
            self._report.add(topics.PREDICTIONS, prediction.query_id, decision, drawn)

    def _arms_of(self, decision: Decision) -> Arms | None:
        """Return what a decision's state says; None where it follows from more than that."""
        like = decision._replace(chosen=(), stable=())
        if self._arms[0] == like:
            return self._arms[1]
        known = [state_of(state, decision.policy) for state in self._states.get(decision.state, ())]
        state = next((one for one in known if one is not None and one.version == decision.state_version), None)
        is_begun = state is None and not decision.state_version and application_of(decision.state) == decision.state
        if state is None and not is_begun:
            return None
        arms = arms_of(registry.parse(decision.policy), decision.arms, decision.state, state, decision.apprentice)
        self._arms = like, None if arms.propensities_in is not None else arms
        return self._arms[1]
