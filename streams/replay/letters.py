"""Dead letters, held against those that kernels have made again, by where their records stand and why."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from streams.dead_letters.letter import PREFIX
from streams.operators.contract import Position
from streams.replay.log import Silences
from streams.replay.report import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streams.operators.contract import DeadLetter, Record
    from streams.replay.recording import Recording
    from streams.replay.report import ReplayReport
    from streams.tape.ends import TapeEnds

_SOURCES: Final = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
# Why the loop around a kernel refuses records.
_OF_THE_LOOP: Final = frozenset({"bug", "too_large", "refused"})


class RefusedRecord(NamedTuple):
    """Where a record had stood, and why it was refused."""

    position: Position
    cause: str


class WrittenLetters:
    """The dead letters of a trace.

    Args:
        trace: that holds them.
    """

    def __init__(self, trace: Recording) -> None:
        self._trace = trace
        self._made: dict[RefusedRecord, tuple[str, int]] = {}  # by which tape, and when

    def made(self, tape: str, now_us: int, letter: DeadLetter) -> None:
        """Take one that a kernel has made again; the last one counts."""
        self._made[RefusedRecord(letter.record.position, letter.cause[:64])] = tape, now_us

    def end(self, ends: TapeEnds, report: ReplayReport) -> None:
        """Tell what differs, and what is missing."""
        for source in _SOURCES:
            topic = topics.dead_letters(source)
            if topic in self._trace.topics():
                self._judge(source, [*self._trace.records(topic)], ends, report)

    def _judge(self, source: str, letters: list[Record], ends: TapeEnds, report: ReplayReport) -> None:
        first_us: dict[Position, int] = {}
        known: set[RefusedRecord] = set()
        for record in letters:
            for refused, role in _of_a_kernel(record):
                known.add(refused)
                first_us.setdefault(refused.position, record.timestamp_us)
                if refused in self._made:
                    report.checked[LETTERS] += 1
                elif ends.may_have_written(role, record.timestamp_us):
                    report.unchecked["call_missing"] += 1
                else:
                    report.checked[LETTERS] += 1
                    report.add(LETTERS, _name(refused), refused.cause, "nothing")
        self._judge_unwritten(source, letters, ends, report, known, first_us)

    def _judge_unwritten(
        self,
        source: str,
        letters: list[Record],
        ends: TapeEnds,
        report: ReplayReport,
        known: set[RefusedRecord],
        first_us: Mapping[Position, int],
    ) -> None:
        """Judge letters that were made again and are not there: a record that has become one already gets no other."""
        is_torn = [record.offset for record in letters] != [*range(len(letters))]
        silences = Silences(record.timestamp_us for record in letters)
        for refused, (tape, now_us) in self._made.items():
            if refused.position.topic != source or refused in known:
                continue
            if first_us.get(refused.position, math.inf) <= now_us + ends.clocks_us:
                report.waiting["complete"] += 1
            elif is_torn:
                report.waiting["torn"] += 1
            elif ends.may_be_unwritten(tape, now_us, silences.cover):
                report.waiting["unwritten"] += 1
            else:
                report.miss(LETTERS, _name(refused), refused.cause)


def _name(refused: RefusedRecord) -> str:
    return f"{refused.position.topic}-{refused.position.partition}@{refused.position.offset}"


def _of_a_kernel(record: Record) -> Iterator[tuple[RefusedRecord, str]]:
    """Yield what a letter says, and whose it is; what another program wrote may not say it, or in other words."""
    found = {name.removeprefix(PREFIX): value for name, value in record.headers if value is not None}
    with suppress(KeyError, ValueError):
        cause = found["cause"].decode()
        if "batch" not in found and cause not in _OF_THE_LOOP:
            place = Position(found["topic"].decode(), int(found["partition"]), int(found["offset"]))
            yield RefusedRecord(place, cause), found["group"].decode()
