"""The topics that kernels write, held against what they have made again; what is not told by any tape is counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.records import ModelPredictions, Observations, Prediction
from streams.operators.contract import BEHIND
from streams.operators.late_outputs import is_late
from streams.replay.letters import WrittenLetters
from streams.replay.log import Leftover, WrittenLog, digest_of, paired

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.codec import Codec
    from streams.operators.contract import DeadLetter, Emit, Record
    from streams.replay.log import MadeRecord
    from streams.replay.recording import Recording
    from streams.replay.report import ReplayReport
    from streams.tape.ends import TapeEnds

_LONGEST: Final = 200  # characters of a value that is shown
COMPARED: Final = (topics.PREDICTIONS, topics.OBSERVATIONS, topics.SHADOWS, topics.MODEL_PREDICTIONS)


class WrittenTopics:
    """All topics that are compared.

    Args:
        trace: that holds them.
        codec: of its records.
        report: that is told what differs.
    """

    def __init__(self, trace: Recording, codec: Codec, report: ReplayReport) -> None:
        self._trace = trace
        self._codec = codec
        self._report = report
        self._held = frozenset(trace.topics())
        self._logs: dict[tuple[str, int], WrittenLog] = {}
        self._letters = WrittenLetters(trace)

    def made(self, tape: str, now_us: int, emit: Emit) -> None:
        """Take a record that a kernel has made again."""
        if emit.topic in COMPARED and emit.topic in self._held:
            self._log(emit.topic, emit.partition).made(tape, now_us, emit)

    def refused(self, tape: str, now_us: int, letter: DeadLetter) -> None:
        """Take a dead letter that a kernel has made again."""
        self._letters.made(tape, now_us, letter)

    def end(self, ends: TapeEnds) -> None:
        """Tell what differs, and what is missing."""
        for topic in COMPARED:
            if topic in self._held:
                for number in sorted({record.partition for record in self._trace.records(topic)}):
                    self._log(topic, number)
        for (topic, partition), log in sorted(self._logs.items()):
            self._judge(topic, partition, log, ends)
        self._letters.end(ends, self._report)

    def _log(self, topic: str, partition: int) -> WrittenLog:
        log = self._logs.get((topic, partition))
        if log is None:
            log = self._logs[topic, partition] = WrittenLog(self._trace.records(topic, partition), _is_made)
        return log

    def _judge(self, topic: str, partition: int, log: WrittenLog, ends: TapeEnds) -> None:
        report = self._report
        logged, made = log.end()
        logged = self._without_copies(topic, partition, logged)
        found = paired(
            [one for record in logged for one in self._items(topic, record.value, record)],
            [one for each in made for one in self._items(topic, each.value, made=each)],
            self._is_same,
        )
        report.checked[topic] += log.same + found.same
        for recorded, replayed in found.pairs:
            if self._are_others(recorded, replayed, log, ends):
                found.only_logged.append(recorded)
                found.only_made.append(replayed)
            else:
                report.checked[topic] += 1
                report.add(topic, replayed.id, recorded.value, replayed.value)
        for one in found.only_logged:
            self._judge_logged(topic, one, ends)
        for one in found.only_made:
            self._judge_made(topic, one, log, ends)

    def _without_copies(self, topic: str, partition: int, logged: list[Record]) -> list[Record]:
        """Leave out what is in the log once more in the same bytes: somebody has tried again."""
        left = Counter(map(digest_of, logged))
        if left:
            there = Counter(map(digest_of, self._trace.records(topic, partition)))
            left = Counter({digest: count for digest, count in left.items() if there[digest] == count})
        kept = [record for record in logged if digest_of(record) in left]
        self._report.inferred.update(["copies"] * (len(logged) - len(kept)))
        return kept

    def _are_others(self, logged: Leftover, made: Leftover, log: WrittenLog, ends: TapeEnds) -> bool:
        """Tell whether one process was killed before it wrote, and another one has done it again, untold."""
        assert logged.written is not None
        return ends.are_several(_writer(logged.written)) and _is_untold(logged, ends) and _is_unwritten(made, log, ends)

    def _judge_logged(self, topic: str, one: Leftover, ends: TapeEnds) -> None:
        """Judge what no kernel has made again."""
        if _is_untold(one, ends):
            self._report.unchecked["call_missing"] += 1
        else:
            self._report.checked[topic] += 1
            self._report.add(topic, one.id, one.value, "nothing")

    def _judge_made(self, topic: str, one: Leftover, log: WrittenLog, ends: TapeEnds) -> None:
        """Judge what a kernel has made again and the log does not have."""
        made = one.made
        assert made is not None
        if _is_unwritten(one, log, ends):
            self._report.waiting["unwritten"] += 1
        elif log.is_torn or made.now_us < log.first_us:
            self._report.waiting["torn"] += 1
        elif not made.is_awaited:
            self._report.waiting["dropped"] += 1
        else:
            self._report.miss(topic, one.id, repr(one.value)[:_LONGEST])

    def _items(
        self, topic: str, value: bytes | None, written: Record | None = None, made: MadeRecord | None = None
    ) -> Iterator[Leftover]:
        for name, item in _taken_apart(topic, value, self._codec):
            yield Leftover(name, item, written, made)

    def _is_same(self, one: object, other: object) -> bool:
        if type(one) is not type(other) or isinstance(one, bytes):
            return one == other
        return self._codec.encode(one) == self._codec.encode(other)


def _taken_apart(topic: str, value: bytes | None, codec: Codec) -> Iterable[tuple[str, object]]:
    """Return the items of a record, by their ids; all of it where it cannot be read."""
    try:
        if topic == topics.OBSERVATIONS:
            return [(seen.query_id, seen) for seen in codec.decode(Observations, value).items]
        if topic == topics.PREDICTIONS:
            return [(peek_id(value), codec.decode(Prediction, value))]
        batch = codec.decode(ModelPredictions, value)
        return [(f"{batch.query_ids[0]} by {batch.model}", batch)]
    except (DecodeError, IndexError):
        return [("", value or b"")]


def _is_untold(one: Leftover, ends: TapeEnds) -> bool:
    """Tell whether a record may have been written by a process at a time that its tape does not tell."""
    assert one.written is not None
    return ends.may_have_written(_writer(one.written), one.written.timestamp_us)


def _is_unwritten(one: Leftover, log: WrittenLog, ends: TapeEnds) -> bool:
    """Tell whether a record may not have been written any more: none is that its process made for the log after it."""
    made = one.made
    assert made is not None
    is_of_the_end = made.number > log.last.get(made.tape, -1)
    return is_of_the_end and ends.may_be_unwritten(made.tape, made.now_us, log.silences.cover)


def _is_made(record: Record) -> bool:
    return bool(_writer(record))


def _writer(record: Record) -> str:
    """Return the role that has written a record; empty if that is a worker, whose calls are not written down."""
    if record.topic == topics.PREDICTIONS:
        return "selection"
    if record.topic == topics.OBSERVATIONS:
        return "joiner"
    return "selection" if BEHIND in record.headers or is_late(record) else ""
