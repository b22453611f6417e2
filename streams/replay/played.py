"""One tape played: the calls of a process on a fresh kernel, and what that makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from schemas.errors import DecodeError
from streams.operators.contract import DeadLetter, Emit, EmitBatch, Phase, StateKey, WriteStates
from streams.replay.kernels import made_again
from streams.replay.recording import MissingInputError
from streams.replay.report import CALLS, STATES
from streams.replay.states import ColumnDraws
from streams.runtime.kafka.fast.whole_batches import emits_of
from streams.tape.calls import KernelCall, Method, StateMark
from streams.tape.ends import TapeEnd
from streams.tape.reader import TapeReader
from streams.tape.writer import checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Loaded, Operator, Ran, Record
    from streams.replay.kernels import MadeAgain
    from streams.replay.recording import TapeInputs
    from streams.replay.report import ReplayReport
    from streams.replay.states import FoldedStates
    from streams.replay.written import WrittenTopics
    from streams.tape.calls import TapeChunk


class PlayedTape:
    """Plays one tape, chunk by chunk.

    Args:
        name: of the tape.
        codec: of the trace's records.
        inputs: the records that it names.
        states: that it names.
        topics: that are told what the kernel makes.
        report: that is told what differs.
    """

    def __init__(
        self,
        name: str,
        codec: Codec,
        inputs: TapeInputs,
        states: FoldedStates,
        topics: WrittenTopics,
        report: ReplayReport,
    ) -> None:
        self._name = name
        self._role = ""
        self._first_us = 0
        self._last_us = 0
        self._codec = codec
        self._inputs = inputs
        self._states = states
        self._topics = topics
        self._report = report
        self._reader = TapeReader()
        self._draws = ColumnDraws(codec, report)
        self._made: MadeAgain | None = None
        self._next = 0
        self._begun = b""  # parts of what is still to come
        self._torn_us: int | None = None  # since when it is not played
        self._is_stopped = False

    def take(self, chunk: TapeChunk, written_us: int) -> None:
        """Play the calls of the next chunk; one that came already was written twice."""
        if chunk.number < self._next:
            return
        if chunk.about is not None and self._next == 0:
            self._begin(chunk)
        elif not self._is_torn and chunk.number != self._next:
            self._tear("tape_missing", self._last_us)
        self._next = chunk.number + 1
        if self._is_torn:
            self._last_us = max(self._last_us, written_us)
            return
        self._begun += chunk.data
        if chunk.is_part:
            return
        data, self._begun = self._begun, b""
        try:
            is_whole = all(map(self._play, self._reader.calls(data)))
        except DecodeError:
            is_whole = self._tear("tape_missing", self._last_us)
        if not is_whole:
            self._last_us = max(self._last_us, written_us)

    @property
    def end(self) -> TapeEnd:
        """How it ends."""
        return TapeEnd(self._role, self._last_us, self._torn_us, self._is_stopped, self._first_us)

    @property
    def _is_torn(self) -> bool:
        return self._torn_us is not None

    def _begin(self, chunk: TapeChunk) -> None:
        about = chunk.about or {}
        self._role = str(about.get("role", ""))
        try:
            self._made = made_again(about, self._codec)
        except (KeyError, TypeError, ValueError):
            self._made = None
        if self._made is None:
            self._tear("kernel_unknown", 0)

    def _tear(self, why: str, at_us: int) -> bool:
        """Play no further call."""
        self._torn_us = at_us
        self._report.unchecked[why] += 1
        return False

    def _play(self, call: KernelCall) -> bool:
        """Make a call again; False: no further one can be."""
        self._first_us = self._first_us or call.now_us
        self._last_us = max(self._last_us, call.now_us)
        self._report.note_time(call.now_us)
        if call.method is Method.LOST:
            return self._tear("tape_missing", call.now_us)
        assert self._made is not None
        self._made.answers.extend(call.answered)
        try:
            records = self._inputs.records(call.runs, call.damaged, are_whole=self._made.takes_batches)
            states = {key: self._state(key, mark, call.now_us) for key, mark in call.states.items()}
        except MissingInputError:
            return self._tear("input_missing", call.now_us)
        effects: Effects = []
        raised: Exception | None = None
        try:
            effects = called(self._made.operator, call, cast("list[Record]", records), states)
        except Exception as fault:  # noqa: BLE001 - of a kernel: whether it fails, is a part of what it does
            raised = fault
        self._draws.know(states)
        self._is_stopped |= call.method is Method.STOPPING
        self._report.checked[CALLS] += 1
        if call.has_raised and raised is None and call.damaged and not self._made.takes_batches:
            self._report.inferred["damaged"] += 1  # what came of it was not done, and the kernel starts over
            return True
        if (raised is not None) is not call.has_raised or self._made.answers:
            recorded = "an exception" if call.has_raised else "no exception"
            place = f"call {call.number} of {self._name}"
            self._report.add(CALLS, place, recorded, repr(raised) if raised else "no exception, or models not asked")
            return self._tear("differed", call.now_us)
        self._compare(effects, call.now_us)
        return True

    def _state(self, key: StateKey, mark: StateMark | None, now_us: int) -> PolicyState | None:
        """Return a state that was read; one that is not the fold of the log is a difference.

        Raises:
            MissingInputError: it is from before the trace.
        """
        if mark is None:
            return None
        try:
            state, is_same = self._states.find(key, mark, now_us)
        except MissingInputError:
            if self._states.begins(key.partition):
                self._report.add(STATES, f"{key.partition}:{key.name}", f"version {mark.version}", "no such version")
            raise
        self._report.checked[STATES] += 1
        if not is_same:
            read = f"version {mark.version}, checksum {mark.checksum:04x}"
            self._report.add(STATES, f"{key.partition}:{key.name}", read, state)
        return state

    def _compare(self, effects: Effects, now_us: int) -> None:
        """Hold what the kernel wants done against what was done."""
        for effect in effects:
            if isinstance(effect, Emit):
                self._topics.made(self._name, now_us, effect)
            elif isinstance(effect, EmitBatch):
                for one in emits_of(effect):
                    self._topics.made(self._name, now_us, one)
                    self._draws.check(one)
            elif isinstance(effect, DeadLetter):
                self._topics.refused(self._name, now_us, effect)
            elif isinstance(effect, WriteStates):
                self._compare_states(effect, now_us)

    def _compare_states(self, write: WriteStates, now_us: int) -> None:
        """Hold what a learner has stored against the fold of the log."""
        for name, state in write.states.items():
            mark = StateMark(state.version, checksum(self._codec.encode(state)))
            try:
                self._state(StateKey(write.partition, name), mark, now_us)
            except MissingInputError:
                self._report.unchecked["input_missing"] += 1


def called(
    kernel: Operator, call: KernelCall, records: list[Record], states: Mapping[StateKey, PolicyState | None]
) -> Effects:
    """Make a call, with what it names."""
    now_us = call.now_us
    ways: Mapping[Method, Callable[[], Effects | None]] = {
        Method.RECORDS: lambda: kernel.on_records(records, now_us),
        Method.TIMER: lambda: kernel.on_timer(now_us, call.unread),
        Method.STATES: lambda: kernel.on_states(states, now_us),
        Method.PREDICTED: lambda: kernel.on_predicted(call.batch_id, cast("Ran", call.ran), now_us),
        Method.LOADED: lambda: kernel.on_loaded(cast("Loaded", call.loaded), now_us),
        Method.PARTITIONS: lambda: kernel.on_partitions(call.starts),
        Method.CAUGHT_UP: lambda: kernel.on_phase(Phase.CAUGHT_UP, now_us),
        Method.STOPPING: lambda: kernel.on_phase(Phase.STOPPING, now_us),
    }
    return ways[call.method]() or []
