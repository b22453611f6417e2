"""Performs a kernel's effects: none of it waits, so a kernel call and its effects are one step."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, assert_never

from streams.operators.contract import (
    DeadLetter,
    Emit,
    EmitBatch,
    FetchFeatures,
    FetchStates,
    Load,
    LogMessage,
    Predict,
    Skip,
    Unload,
    WriteStates,
)
from streams.runtime.errors import RecordTooLargeError

if TYPE_CHECKING:
    from streams.operators.contract import Effects
    from streams.runtime.errors import RecordRefusedError
    from streams.runtime.offsets import OffsetTracker
    from streams.runtime.ports import Executors
    from streams.runtime.role.accumulator import Accumulator
    from streams.runtime.role.dead_letters import DeadLetters
    from streams.runtime.role.feature_reader import FeatureReader
    from streams.runtime.role.state_queue import StateQueue

_log = logging.getLogger(__name__)


class Performer:
    """Passes each effect to the part that performs it."""

    def __init__(
        self,
        lanes: Accumulator,
        tracker: OffsetTracker,
        dead_letters: DeadLetters,
        keeper: StateQueue | None,
        executors: Executors | None = None,
        features: FeatureReader | None = None,
    ) -> None:
        self._lanes = lanes
        self._tracker = tracker
        self._dead_letters = dead_letters
        self._keeper = keeper
        self._executors = executors
        self._features = features
        self.counters: Counter[str] = Counter()

    def perform(self, effects: Effects) -> None:
        """Perform effects in order."""
        emits: list[Emit | EmitBatch] = []
        for effect in effects:
            if type(effect) is Emit or type(effect) is EmitBatch:  # costs a third of isinstance
                emits.append(effect)
            elif isinstance(effect, Skip):
                self._skip(effect)
            elif isinstance(effect, DeadLetter):
                emits += self._letter(effect)
            elif isinstance(effect, (Predict, Load, Unload)):
                self._run(effect)
            elif isinstance(effect, (FetchStates, FetchFeatures, WriteStates)):
                self._ask(effect)
            elif isinstance(effect, LogMessage):
                _log.log(logging.ERROR if effect.is_fault else logging.INFO, "%s", effect.message)
            elif not isinstance(effect, Emit | EmitBatch):
                assert_never(effect)
        if emits:
            self._lanes.send(emits)

    def _skip(self, skip: Skip) -> None:
        self._tracker.complete(skip.completes)
        self._tracker.complete_spans(skip.spans)
        skipped = len(skip.completes) + sum([span.end - span.begin for span in skip.spans])
        self.counters[f"skipped_total{{reason={skip.reason}}}"] += skipped

    def _run(self, effect: Predict | Load | Unload) -> None:
        executors = self._executors
        if executors is None:
            raise TypeError(f"no executors for {type(effect).__name__}; give the loop executors")
        if isinstance(effect, Predict):
            executors.predict(effect)
        elif isinstance(effect, Load):
            executors.load(effect)
        else:
            executors.unload(effect)

    def _ask(self, effect: FetchStates | FetchFeatures | WriteStates) -> None:
        if isinstance(effect, FetchFeatures):
            if self._features is None:
                raise TypeError("no store for FetchFeatures; give the loop a store of features")
            self._features.ask(effect.keys)
            return
        if self._keeper is None:
            raise TypeError(f"no store for {type(effect).__name__}; give the loop a store")
        self._keeper.ask(effect)

    def refuse(self, emit: Emit, fault: RecordRefusedError) -> None:
        """Write a dead letter for a record that can never be produced."""
        large = isinstance(fault, RecordTooLargeError)
        cause = "too_large" if large else "refused"
        self.counters[f"dead_letters_total{{cause={cause},topic={emit.topic}}}"] += 1
        letter = self._dead_letters.too_large(emit) if large else self._dead_letters.refused(emit, fault)
        self._lanes.send([letter])

    def _letter(self, letter: DeadLetter) -> list[Emit]:
        """Return the dead letter, once: a record that is complete already, or outside the group, was written before."""
        record = letter.record
        if not self._tracker.is_outstanding(record.position):
            self.counters[f"refused_again_total{{cause={letter.cause}}}"] += 1
            place = record.topic, record.partition, record.offset
            _log.warning("%s-%d@%d cannot be used: %s", *place, letter.cause)  # its message may quote the record
            return []
        self.counters[f"dead_letters_total{{cause={letter.cause},topic={record.topic}}}"] += 1
        if self._keeper is not None:
            self._keeper.hold(record.position)
        return [self._dead_letters.emit(letter)]
