"""Queries that should have an answer and have none.

Selection reads a partition in order. What it had passed long before its last answer it was done with: a query there
whose time was over has an answer, is a copy, or is a dead letter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import Prediction, Query
from streams.replay.held_records import HeldRecords
from streams.replay.marks import Marks
from streams.replay.report import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.replay.coverage import Coverage, SecondLook
    from streams.replay.report import ReplayReport
    from streams.replay.terms import RecordedTerms

_OPEN_BYTES: Final = 64 << 20
# How long selection must have gone on answering: longer than it takes to send again what was not acknowledged.
_SETTLED_US: Final = 30_000_000
# A client's clock may be ahead.
_SKEW_US: Final = 10_000_000


class MissingAnswers:
    """Follows queries until they are answered.

    Args:
        codec: of the trace's records.
        remembered: ids by which selection recognises copies, by application and partition.
        terms: of the applications.
        coverage: of the trace.
        report: that is told what is missing.
    """

    def __init__(
        self,
        codec: Codec,
        remembered: int,
        terms: Mapping[str, RecordedTerms],
        coverage: Coverage,
        report: ReplayReport,
    ) -> None:
        self._codec = codec
        self._remembered = remembered
        self._terms = terms
        self._coverage = coverage
        self._report = report
        self._open: HeldRecords[Record] = HeldRecords(_OPEN_BYTES)
        self._marks: defaultdict[int, Marks] = defaultdict(Marks)
        self._settled: dict[int, int] = {}  # by partition, once all has been read
        self._asked: Counter[tuple[int, str]] = Counter()
        self._known_from: dict[tuple[int, str], int] = {}  # offsets behind which no copy is of a query before the trace

    def asked(self, record: Record, answers: Sequence[Record]) -> None:
        """Take a query; `answers` are those to its id that came before it."""
        query_id, application = peek_texts(record.value, 2)
        place = record.partition, application
        self._asked[place] += 1
        if self._asked[place] == self._remembered:
            self._known_from[place] = record.offset
        if not any(self._answers(answer, record) for answer in answers):
            self._open.add(query_id, record, len(record.value or b""))

    def answered(self, record: Record, prediction: Prediction, query: Record | None) -> None:
        """Take an answer, and the query that it is for."""
        waiting = self._open.pop(prediction.query_id)
        for one in waiting:
            if not self._is_for(prediction, one, is_alone=len(waiting) == 1):
                self._open.add(prediction.query_id, one, len(one.value or b""))
        if query is not None:
            self._marks[query.partition].add(record.timestamp_us, query.offset)

    def end(self, look: SecondLook) -> None:
        """Tell the report which answers are missing, and count what cannot be known."""
        waiting = self._report.waiting
        waiting.update({"let_go": self._open.let_go} if self._open.let_go else {})
        open_ = [record for _, several in self._open for record in several]
        if not open_ or not look.has(topics.PREDICTIONS):
            return
        dead, _ = look.dead(topics.QUERIES)
        _, refused = look.dead(topics.PREDICTIONS)
        suspects: dict[str, list[Record]] = {}
        for record in open_:
            query = self._decoded(record)
            if query is None or record.position in dead or query.query_id in refused:
                continue
            why = self._why_not(record, query, look)
            if why is None:
                suspects.setdefault(query.query_id, []).append(record)
            else:
                waiting[why] += 1
        for answer in look.about(topics.PREDICTIONS, {*suspects}) if suspects else ():
            its = suspects.pop(peek_texts(answer.value, 1)[0], [])
            left = [record for record in its if not self._answers(answer, record)]
            suspects |= {peek_texts(answer.value, 1)[0]: left} if left else {}
        for query_id, several in suspects.items():
            first = {peek_texts(record.value, 2)[1]: record for record in reversed(several)}  # of copies
            for record in first.values():
                self._report.miss(ANSWERS, query_id, f"an answer to {record.topic}-{record.partition}@{record.offset}")

    def _why_not(self, record: Record, query: Query, look: SecondLook) -> str | None:
        """Return why a query may have no answer in the trace; None if it must have one."""
        marks, coverage = self._marks[record.partition], self._coverage
        if topics.PREDICTIONS in coverage.torn:
            return "torn"
        if record.partition not in self._settled:
            self._settled[record.partition] = marks.settled_us(_SETTLED_US)
        settled_us = self._settled[record.partition]
        known = self._terms.get(query.application)
        slo_us = int(query.slo_ms * 1e3) if query.slo_ms else 0 if known is None else known.slo_us
        due_us = max(record.timestamp_us, query.sent_us or 0) + slo_us
        if record.offset >= marks.passed(settled_us) or due_us > settled_us:
            return "unanswered"
        if record.timestamp_us < coverage.from_us(topics.PREDICTIONS) + _SKEW_US:
            return "unanswered"
        place = record.partition, query.application
        if not coverage.has_begun(topics.QUERIES) and record.offset <= self._known_from.get(place, record.offset):
            return "copy"
        return None if look.has(topics.dead_letters(topics.QUERIES)) else "letters"

    def _decoded(self, record: Record) -> Query | None:
        try:
            return self._codec.decode(Query, record.value)
        except DecodeError:
            return None

    def _answers(self, answer: Record, record: Record) -> bool:
        try:
            return self._is_for(self._codec.decode(Prediction, answer.value), record, is_alone=False)
        except DecodeError:
            return False

    def _is_for(self, prediction: Prediction, record: Record, *, is_alone: bool) -> bool:
        """Tell whether a prediction answers a query; the token is looked at where an id was asked more than once."""
        if peek_texts(record.value, 2)[1] != prediction.application:
            return False
        query = None if is_alone else self._decoded(record)
        return query is None or query.reply_token == prediction.reply_token
