"""The join buffer of one partition: what waits, for how long, and how earlier waiting has ended.

Lag            whether a topic is behind: not read up to where it ended half a second ago
Ending         how the waiting of a prediction ended: later feedback is judged by it
EndedQueries   query ids by how their waiting ended, each known for a while
JoinBuffer     predictions that wait for feedback, and feedback that came before its prediction
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas import topics
from schemas.framing import peek_texts
from streams.operators.contract import Position
from streams.operators.ids import SECOND_US, IdTimes, seconds_up
from streams.operators.join.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.operators.contract import Record
    from streams.operators.join.shadows import Shadows
    from streams.operators.join.shared_buffer import SharedBuffer

_OFFSET_BYTES = 8
# Different feedback for one query that waits for its prediction; there is no room for more of it.
_SAME_QUERY = 16
# Ended waits are cleaned up when there are at least this many, and as many as those that still wait.
_ENDED = 4_000
# Longer ids do not wait. Ended waits stay until they are cleaned up, so many of them must be small.
MAX_ID_BYTES = 512
_SHORT_ID = MAX_ID_BYTES // 4  # characters, of four bytes at most
# As often as roles give their kernels the numbers of unread records.
_LOOK_US = 500_000


class Lag:
    """How far a topic has been read in one partition, and whether it is behind: not up to its end of half a second ago.

    A topic that is written all the time has unread records at nearly every moment. So unread records alone tell
    nothing, and waiting for none would never end. The end at the look before decides:

        look      1              2               3
        end       ├─────────────▶│ 1,000         │ 1,020
        position  ├──▶ 400: behind at look 2     ├──▶ 1,010: past 1,000, so no longer behind

    If nothing is read at all, as while the partition has no leader, waiting does not help. Then it is not behind.

    Attributes:
        position: the offset after the last record that was read; None = nothing was read.
        is_behind: whether it is behind.
        complete_us: all that was written until then has been read; by the clock here, as clients stamp their records.
    """

    __slots__ = ("_end", "_looked_us", "_paused", "_was", "complete_us", "is_behind", "position")

    def __init__(self) -> None:
        self.position: int | None = None
        self.is_behind = False
        self.complete_us = 0
        self._was: int | None = None  # the position at the last look
        self._end: int | None = None  # of the topic then
        self._looked_us: int | None = None
        self._paused = False  # whether it was left unread at some time since then

    def look(self, unread: int, now_us: int, *, is_paused: bool) -> None:
        """Note the progress; at the first look a topic with unread records is behind.

        Args:
            unread: how many of its records are unread.
            now_us: the time.
            is_paused: whether it has been left unread on purpose since: then it need not have moved.
        """
        self._paused |= is_paused
        is_past = self._end is not None and self.position is not None and self.position >= self._end
        if not unread:
            self.is_behind, self.complete_us = False, now_us
        elif is_past and self._looked_us is not None:
            self.complete_us = max(self.complete_us, self._looked_us)
        if self._looked_us is not None and now_us < self._looked_us + _LOOK_US:
            return
        if unread:
            is_reading = self._looked_us is None or self._paused or self.position != self._was
            self.is_behind = is_reading and not is_past
        self._was, self._looked_us, self._paused = self.position, now_us, False
        self._end = None if self.position is None else self.position + unread


class Ending(enum.StrEnum):
    """How the waiting of a prediction ended; a text, as another enumeration's members cost 0.1 us to look up by."""

    JOINED = "joined"  # feedback has been joined with it
    OVER = "over"  # its window ended without feedback
    BEFORE = "before"  # one or the other, before this joiner began: the feedback's own time tells
    UNDECIDED = "undecided"  # it never waited: no model was chosen, so there is nothing to learn
    REFUSED = "refused"  # it never waited: there was no room
    AMBIGUOUS = "ambiguous"  # another application has been asked with its id


class EndedQueries:
    """Query ids by how the waiting ended, each known for a while."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Ending, IdTimes] = {}

    def put(self, how: Ending, query_id: str, until_us: int, oldest_s: int) -> None:
        """Remember how the waiting of a query ended.

        Args:
            how: its waiting ended.
            query_id: its id.
            until_us: how long it is known.
            oldest_s: `seconds` of now: what was to be known until then may be forgotten.
        """
        self.of(how).put(query_id, seconds_up(until_us), oldest_s)

    def of(self, how: Ending) -> IdTimes:
        """Return the table of queries whose waiting ended so, to put many at once."""
        known = self._known.get(how)
        if known is None:
            known = self._known[how] = IdTimes()
        return known

    @property
    def tables(self) -> list[IdTimes]:
        """All tables of queries whose waiting ended: one is known while its time is later than now."""
        return [*self._known.values()]

    def knows(self, query_id: str, now_s: int) -> bool:
        """Tell whether a query is still known."""
        return any(known.find(query_id) > now_s for known in self._known.values())

    def find(self, query_id: str, now_us: int) -> tuple[Ending, int] | None:
        """Return how a query's waiting ended and until when that is known (us); None if it is not."""
        now_s = now_us // SECOND_US
        for how, known in self._known.items():
            until_s = known.find(query_id)
            if until_s > now_s:
                return how, until_s * SECOND_US
        return None


class EarlyFeedback(enum.Enum):
    """Feedback that comes before its prediction."""

    WAITS = "waits"
    DUPLICATE = "duplicate"
    NO_ROOM = "no_room"


@dataclass(slots=True)
class JoinBuffer:
    """All by query id; the room is shared with the other partitions."""

    number: int
    start: int  # first offset of `predictions` that is not complete
    room: SharedBuffer  # of predictions, by application
    early_room: SharedBuffer  # of early feedback, by partition: only the prediction names the application
    shadows: Shadows
    predictions: dict[str, bytes] = field(
        default_factory=dict
    )  # offset and bytes in one: of a million each object would count
    early: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # feedback before its prediction
    ended: EndedQueries = field(default_factory=EndedQueries)
    wheel: TimerWheel = field(default_factory=TimerWheel)  # when windows end
    early_wheel: TimerWheel = field(default_factory=TimerWheel)  # when early feedback has waited long enough
    predictions_lag: Lag = field(default_factory=Lag)
    feedback_lag: Lag = field(default_factory=Lag)
    read_us: int = 0  # when a prediction was read last
    newest_us: int = 0  # the timestamp it had

    def join(self, joined: Iterable[tuple[str, str, int]], oldest_s: int) -> None:
        """End the wait of predictions, and remember them for a while as joined with feedback.

        Args:
            joined: id and application of each query, and how long it is known (us).
            oldest_s: `seconds` of now: what was to be known until then may be forgotten.
        """
        for query_id, application, until_us in joined:
            self.pop(query_id, application)
            self.close(Ending.JOINED, query_id, until_us, oldest_s)

    def close(self, how: Ending, query_id: str, until_us: int, oldest_s: int) -> None:
        """Remember how the waiting of a query ended, and drop the outputs of shadows for it."""
        if self.shadows:
            self.shadows.pop(query_id)
        self.ended.put(how, query_id, until_us, oldest_s)

    def wait(self, query_id: str, application: str, offset: int, value: bytes) -> bool:
        """Let a prediction wait for its feedback; False if its application has its share of the room."""
        if len(query_id) > _SHORT_ID and is_long(query_id):
            return False
        if not self.room.take(application, _OFFSET_BYTES + len(value)):
            return False
        self.predictions[query_id] = offset.to_bytes(_OFFSET_BYTES, "big") + value
        return True

    def pop(self, query_id: str, application: str) -> None:
        """End the wait of a prediction."""
        stored = self.predictions.pop(query_id, None)
        if stored is not None:
            self.room.give_back(application, len(stored))

    def tidy(self) -> None:
        """Drop the timers of waits that ended earlier, if they are many."""
        if len(self.wheel) > 2 * len(self.predictions) + _ENDED:
            self.wheel.keep(self.predictions)
        if len(self.early_wheel) > 2 * len(self.early) + _ENDED:
            self.early_wheel.keep(self.early)

    def keep(self, feedback: Record, query_id: str, until_us: int) -> EarlyFeedback:
        """Let feedback wait for its prediction, because it can only be checked against that.

        Its headers are dropped: clients may send anything in them.
        """
        early = self.early.get(query_id, ())
        if any(known.value == feedback.value for known in early):
            return EarlyFeedback.DUPLICATE
        if len(early) == _SAME_QUERY or is_long(query_id):
            return EarlyFeedback.NO_ROOM
        if not self.early_room.take(self.number, feedback_bytes(feedback)):
            return EarlyFeedback.NO_ROOM
        if not early:
            self.early_wheel.add(until_us, query_id)
        self.early[query_id] = (*early, feedback._replace(headers=()) if feedback.headers else feedback)
        return EarlyFeedback.WAITS

    def pop_early(self, query_id: str) -> tuple[Record, ...]:
        """Return the feedback that has waited for a prediction, and end its wait."""
        found = self.early.pop(query_id, ())
        for record in found:
            self.early_room.give_back(self.number, feedback_bytes(record))
        return found

    def expired_early(self, query_id: str, now_us: int, early_us: int, paused_us: int) -> tuple[Record, ...]:
        """End feedback's wait for a prediction, unless the predictions of its time are still to be read.

        Args:
            query_id: of the feedback; where none waits, nothing is done.
            now_us: the time.
            early_us: how long feedback waits.
            paused_us: when predictions were last left unread.
        """
        if query_id not in self.early:
            return ()
        began_us = now_us - early_us
        is_reading = max(self.read_us, paused_us) > began_us
        if is_reading and self.newest_us < began_us:
            self.early_wheel.add(now_us + early_us, query_id)
            return ()
        return self.pop_early(query_id)

    def release(self) -> None:
        """Give back all room; this buffer is not used any more."""
        for stored in self.predictions.values():
            self.room.give_back(peek_texts(value_of(stored), 2)[1], len(stored))
        for query_id in [*self.early]:
            self.pop_early(query_id)


def feedback_bytes(feedback: Record) -> int:
    """Return what waiting feedback takes of its room."""
    return len(feedback.value or b"") + len(feedback.key or b"")


def is_long(query_id: str) -> bool:
    """Tell whether an id is too long to wait."""
    return len(query_id) > _SHORT_ID and len(query_id.encode()) > MAX_ID_BYTES


def position_of(stored: bytes, partition: int) -> Position:
    """Return where a prediction that waited stands."""
    return Position(topics.PREDICTIONS, partition, int.from_bytes(stored[:_OFFSET_BYTES], "big"))


def value_of(stored: bytes) -> bytes:
    """Return the bytes of a prediction that waited."""
    return stored[_OFFSET_BYTES:]
