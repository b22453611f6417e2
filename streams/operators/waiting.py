"""What one partition of the joiner remembers: what waits, for how long, and what has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas import topics
from streams.operators.contract import Position
from streams.operators.ids import SECOND_US, IdTimes, seconds, seconds_up
from streams.operators.wheel import SecondsWheel

if TYPE_CHECKING:
    from streams.operators.contract import Record
    from streams.operators.shadows import Shadows

_OFFSET_BYTES = 8
# Different feedback for one query that waits for its prediction; one more counts as a duplicate.
_SAME_QUERY = 16
# Waits that have met what they waited for are looked for when they are as many as the others, and so many.
_ENDED = 4_000
_new = tuple.__new__  # half the cost of a named tuple's constructor


@dataclass(slots=True)
class Waiting:
    """All by query id."""

    start: int  # first offset of `predictions` that is not complete
    predictions: dict[str, bytes] = field(default_factory=dict)  # as `packed`
    early: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # feedback before its prediction
    shadows: Shadows = field(default_factory=dict)
    joined: IdTimes = field(default_factory=IdTimes)  # and until when each is remembered, in seconds
    expired: IdTimes = field(default_factory=IdTimes)  # the window ended without feedback; likewise
    wheel: SecondsWheel = field(default_factory=SecondsWheel)  # when windows end
    early_wheel: SecondsWheel = field(default_factory=SecondsWheel)  # when early feedback has waited long enough
    read_us: int = 0  # when a prediction was read last
    newest_us: int = 0  # the timestamp it had

    def join(self, query_id: str, until_us: int, oldest_s: int) -> None:
        """Let a prediction wait no longer, and know it for so long as one that feedback has been joined with.

        Args:
            query_id: of the prediction.
            until_us: how long it is known.
            oldest_s: `seconds` of now: what was to be known until then may be forgotten.
        """
        self.predictions.pop(query_id, None)
        if self.shadows:
            self.shadows.pop(query_id, None)
        self.joined.put(query_id, seconds_up(until_us), oldest_s)

    def expire(self, query_id: str, until_us: int, now_us: int) -> None:
        """Know a query for so long as one whose window has ended."""
        self.expired.put(query_id, seconds_up(until_us), seconds(now_us))

    def is_joined(self, query_id: str, now_us: int) -> bool:
        """Whether it is known that feedback has been joined with this query's prediction."""
        return self.joined.find(query_id) > now_us // SECOND_US

    def is_closed(self, query_id: str, now_us: int) -> bool:
        """Whether it is known that this query's prediction waits no longer."""
        now_s = now_us // SECOND_US
        return self.joined.find(query_id) > now_s or self.expired.find(query_id) > now_s

    def tidy(self) -> None:
        """Forget when waits end that have ended before, if they are many."""
        if len(self.wheel) > 2 * len(self.predictions) + _ENDED:
            self.wheel.keep(self.predictions)
        if len(self.early_wheel) > 2 * len(self.early) + _ENDED:
            self.early_wheel.keep(self.early)

    def keep(self, feedback: Record, query_id: str, until_us: int) -> bool:
        """Let feedback wait for its prediction, as whether it is right cannot be told before; False for a duplicate."""
        early = self.early.get(query_id)
        if early is None:
            self.early[query_id] = (feedback,)
            self.early_wheel.add(until_us, query_id)
            return True
        if len(early) == _SAME_QUERY or any(known.value == feedback.value for known in early):
            return False
        self.early[query_id] = (*early, feedback)
        return True

    def given_up(self, query_id: str, now_us: int, early_us: int, paused_us: int) -> tuple[Record, ...]:
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
        return self.early.pop(query_id)


def packed(offset: int, value: bytes) -> bytes:
    """Return a prediction as it waits, offset and bytes in one: of a million each object would count."""
    return offset.to_bytes(_OFFSET_BYTES, "big") + value


def position_of(stored: bytes, partition: int) -> Position:
    """Return where a prediction that waited stands."""
    return _new(Position, (topics.PREDICTIONS, partition, int.from_bytes(stored[:_OFFSET_BYTES], "big")))


def value_of(stored: bytes) -> bytes:
    """Return the bytes of a prediction that waited."""
    return stored[_OFFSET_BYTES:]
