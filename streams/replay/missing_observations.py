"""Feedback and windows of which something should have been observed and was not.

The joiner reads feedback in order, and ends an application's windows in the order in which they began. What it had
passed long before its last observation it was done with. Feedback there that was told in time is in an observation, is
a copy, or is a dead letter; a window there that teaches at its end has taught.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import JoinStatus, Prediction
from streams.operators.join.buffer import is_long
from streams.operators.join.shared_buffer import USUAL_BYTES
from streams.replay.held_records import HeldRecords
from streams.replay.marks import Marks
from streams.replay.report import OBSERVATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.operators.join.kernel import JoinerSettings
    from streams.replay.coverage import Coverage, SecondLook
    from streams.replay.joins import RecordedObservation
    from streams.replay.report import ReplayReport
    from streams.replay.terms import RecordedTerms

_TOLD_BYTES: Final = 64 << 20
_SILENT_BYTES: Final = 256 << 20
_MINUTE_US: Final = 60_000_000


class _ObservationWindow(NamedTuple):
    """Of a prediction whose window teaches at its end."""

    partition: int
    offset: int
    begun_us: int
    answered_us: int
    application: str


class MissingObservations:
    """Follows feedback, and windows that teach at their end, until something is observed.

    Args:
        codec: of the trace's records.
        settings: of the joiner.
        terms: of the applications.
        clocks_us: how far the clocks of those who wrote may have been apart.
        coverage: of the trace.
        report: that is told what is missing.
    """

    def __init__(
        self,
        codec: Codec,
        settings: JoinerSettings,
        terms: Mapping[str, RecordedTerms],
        clocks_us: int,
        coverage: Coverage,
        report: ReplayReport,
    ) -> None:
        self._codec = codec
        self._settings = settings
        self._terms = terms
        self._clocks_us = clocks_us
        self._coverage = coverage
        self._report = report
        self._told: HeldRecords[Record] = HeldRecords(_TOLD_BYTES)
        self._silent: HeldRecords[_ObservationWindow] = HeldRecords(_SILENT_BYTES)
        self._marks: defaultdict[int, Marks] = defaultdict(Marks)  # of observations, by partition of predictions
        self._joined: defaultdict[int, Marks] = defaultdict(Marks)  # offsets of feedback
        self._ended: defaultdict[tuple[int, str], Marks] = defaultdict(Marks)  # when windows began, by application
        self._settled: dict[int, int] = {}  # by partition, once all has been read
        self._waited: Counter[int] = Counter()  # by minute: predictions that waited for feedback,
        self._large: Counter[int] = Counter()  # and their bytes beyond the usual

    def predicted(self, record: Record, prediction: Prediction, *, is_first: bool) -> None:
        """Take a prediction; only the first of a query waits, and none once another application has the same id."""
        if any(window.application != prediction.application for window in self._silent.get(prediction.query_id)):
            self._silent.pop(prediction.query_id)
        if prediction.decision is None:
            return
        minute, size = record.timestamp_us // _MINUTE_US, len(record.value or b"")
        self._waited[minute] += 1
        self._large[minute] += max(0, size - USUAL_BYTES)
        known = self._terms.get(prediction.application)
        if is_first and known is not None and known.has_default and known.window_us:
            window = _ObservationWindow(*record[1:4], prediction.answered_us, prediction.application)
            self._silent.add(prediction.query_id, window, 0)

    def told(self, record: Record, query_id: str, *, is_first: bool) -> None:
        """Take feedback; what follows on the same query may be a copy."""
        if is_first:
            self._told.add(query_id, record, len(record.value or b""))

    def observed(self, query_id: str) -> None:
        """Take what was observed of a query."""
        self._told.pop(query_id)
        self._silent.pop(query_id)

    def made(self, seen: RecordedObservation, written_us: int) -> None:
        """Take an observation with what it was made from."""
        prediction, observation = seen.prediction, seen.observation
        self._marks[prediction.partition].add(written_us, 0)
        if seen.feedback is not None:
            self._joined[prediction.partition].add(written_us, seen.feedback.offset)
        elif observation.status is JoinStatus.DEFAULT:
            self._ended[prediction.partition, observation.application].add(written_us, prediction.timestamp_us)

    def end(self, look: SecondLook) -> None:
        """Tell the report which observations are missing, and count what cannot be known."""
        waiting = self._report.waiting
        let_go = self._told.let_go + self._silent.let_go
        waiting.update({"let_go": let_go} if let_go else {})
        if not look.has(topics.PREDICTIONS) or not look.has(topics.OBSERVATIONS):
            return
        dead, _ = look.dead(topics.FEEDBACK)
        _, refused = look.dead(topics.OBSERVATIONS)
        told, silent = {}, {}
        for query_id, (record, *_) in self._told:
            if record.position not in dead and self._counts(query_id, self._why_not_joined(record), refused, look):
                told[query_id] = record
        for query_id, (window, *_) in self._silent:
            if self._counts(query_id, self._why_not_ended(window), refused, look):
                silent[query_id] = window
        observed = look.observed({*told, *silent}) if told or silent else set()
        told = self._in_time({name: record for name, record in told.items() if name not in observed}, look)
        for query_id, record in told.items():
            self._report.miss(OBSERVATIONS, query_id, f"feedback at {record.topic}-{record.partition}@{record.offset}")
        for query_id in sorted(silent.keys() - observed - told.keys()):
            self._report.miss(OBSERVATIONS, query_id, "its window has ended, which teaches")

    def _counts(self, query_id: str, why: str | None, refused: set[str], look: SecondLook) -> bool:
        """Tell whether something must have been observed of a query; else count why not."""
        if query_id in refused or is_long(query_id):
            return False
        if why is None and self._is_pressed:
            why = "room"
        if why is None and not look.has(topics.dead_letters(topics.FEEDBACK)):
            why = "letters"
        if why is None and {topics.PREDICTIONS, topics.OBSERVATIONS} & self._coverage.torn:
            why = "torn"
        self._report.waiting.update([] if why is None else [why])
        return why is None

    def _why_not_joined(self, record: Record) -> str | None:
        settled_us = self._settled_us(record.partition)
        if record.offset >= self._joined[record.partition].passed(settled_us):
            return "unobserved"
        return None if record.timestamp_us > self._from_us else "unobserved"

    def _why_not_ended(self, window: _ObservationWindow) -> str | None:
        """Return why a window may have ended without teaching, or not at all; long after its end it teaches nothing."""
        until_us = window.answered_us + self._settings.memory_us - self._clocks_us
        until_us = min(until_us, self._settled_us(window.partition))
        ended = self._ended[window.partition, window.application]
        if window.begun_us + self._clocks_us > ended.passed(until_us):
            return "unobserved"
        return None if window.begun_us > self._from_us else "unobserved"

    def _settled_us(self, partition: int) -> int:
        """Return until when what the joiner passed is done with: a wait of a window and more has followed."""
        if partition not in self._settled:
            present_us = self._settings.window_us + self._settings.early_us + _MINUTE_US // 2
            self._settled[partition] = self._marks[partition].settled_us(present_us)
        return self._settled[partition]

    @cached_property
    def _from_us(self) -> int:
        """Since when all is known that a query had before."""
        begun_us = self._coverage.from_us(topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
        return begun_us + self._longest_us if begun_us else 0

    @property
    def _longest_us(self) -> int:
        return 2 * (self._settings.window_us + self._settings.early_us)

    @cached_property
    def _is_pressed(self) -> bool:
        """Whether the joiner may have had no room: of what may have waited at a time, half is as much as it has."""
        minutes = self._longest_us // _MINUTE_US + 1
        rooms = (self._waited, self._settings.predictions), (self._large, self._settings.large_bytes // 2)
        return any(
            2 * sum(counts[minute - before] for before in range(minutes + 1)) >= room
            for counts, room in rooms
            for minute in [*counts]
        )

    def _in_time(self, told: Mapping[str, Record], look: SecondLook) -> dict[str, Record]:
        """Return the feedback that was told inside the window of a decided answer, as far as that is certain."""
        found: dict[str, Record] = {}
        left = {*told}
        for record in look.about(topics.PREDICTIONS, left) if left else ():
            prediction = self._decoded(record)
            if prediction is None or prediction.query_id not in left:
                continue
            left.remove(prediction.query_id)  # the first counts
            feedback, known = told[prediction.query_id], self._terms.get(prediction.application)
            end_us = record.timestamp_us + (0 if known is None else known.window_us) - self._clocks_us
            is_due = prediction.decision is not None and record.partition == feedback.partition
            if is_due and feedback.timestamp_us < end_us:
                found[prediction.query_id] = feedback
        return found

    def _decoded(self, record: Record) -> Prediction | None:
        try:
            return self._codec.decode(Prediction, record.value)
        except DecodeError:
            return None
