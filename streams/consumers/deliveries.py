"""What a consumer has read, what is being handled, and which offsets may be committed. No I/O.

    polled records ──▶ take ──▶ wait ──▶ hand_out ──▶ in hand ──▶ handled ──▶ committable
                                            └─ other applications', repeated, undecodable: complete at once

A prediction is *repeated* if its id and reply token were handed out before: after a crash, selection answers again what
it had not committed. The answer that came first counts. The memory of ids is bounded, and each partition has its own.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import Prediction
from streams.operators.ids import RecentIds
from streams.runtime.corrupt import CorruptBatch
from streams.runtime.offsets import OffsetTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Position, Record
    from streams.runtime.ports import TopicPartition

_log = logging.getLogger(__name__)


class Deliveries:
    """The records of the partitions that one member owns.

    Args:
        codec: of predictions.
        application: whose predictions are wanted; None = of all.
        remembered: ids that are remembered at least, over all partitions; at most twice as many are.

    Attributes:
        repeated: predictions that were not handed out, because they had been.
        undecodable: records that are no predictions, and batches that cannot be unpacked.
    """

    def __init__(self, codec: Codec, application: str | None, remembered: int) -> None:
        self._codec, self._application, self._remembered = codec, application, remembered
        self._ids = RecentIds(remembered)
        self._owned: set[int] = set()
        self._offsets = OffsetTracker()
        self._waiting: deque[Record] = deque()
        self._hand: list[Position] = []
        self.repeated = self.undecodable = 0

    @property
    def are_waiting(self) -> bool:
        """Whether records have been taken that are not handed out yet."""
        return bool(self._waiting)

    @property
    def is_empty_handed(self) -> bool:
        """Whether nothing is being handled."""
        return not self._hand

    def take(self, records: Sequence[Record]) -> None:
        """Take what a poll has brought; partitions in any order, each one's offsets ascending."""
        offsets: dict[TopicPartition, list[int]] = {}
        for record in records:
            offsets.setdefault(record[:2], []).append(record.offset)
        for place, those in offsets.items():
            self._offsets.delivered(place, those)
        self._waiting.extend(records)

    def hand_out(self, at_most: int) -> list[Prediction]:
        """Return the next predictions, which are in hand from now on; none are left waiting if it returns none."""
        assert self.is_empty_handed, "what was handed out before is not handled"
        found: list[Prediction] = []
        others: list[Position] = []
        while self._waiting and len(found) < at_most:
            record = self._waiting.popleft()
            prediction = self._wanted(record)
            if prediction is None:
                others.append(record.position)
            else:
                found.append(prediction)
                self._hand.append(record.position)
        self._offsets.complete(others)
        return found

    def handled(self) -> None:
        """What is in hand has been handled."""
        self._offsets.complete(self._hand)
        self._hand = []

    def drop_hand(self) -> None:
        """What is in hand has not been handled: it will be read again."""
        self._hand = []

    def drop_waiting(self) -> None:
        """Hand out nothing more of what has been taken: it will be read again."""
        self._waiting.clear()

    def committable(self) -> Mapping[TopicPartition, int]:
        """Return the next offsets that may be committed, where they are ahead of what is committed."""
        return self._offsets.committable()

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what the broker has."""
        self._offsets.committed(offsets)

    def assigned(self, starts: Mapping[TopicPartition, int]) -> None:
        """Own these partitions and no others, each from its start on."""
        owned = {partition for _, partition in starts}
        self._ids.drop(self._owned - owned)
        self._owned = owned
        self._ids.capacity = max(1, self._remembered // max(1, len(owned)))
        for place, start in starts.items():
            self._offsets.assign(place, start, start)

    def set_back(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begin with these partitions anew, from these offsets on: their logs go on below what was read of them."""
        self._waiting = deque(record for record in self._waiting if record[:2] not in starts)
        for place, start in starts.items():
            self._offsets.assign(place, start, start)

    def revoked(self, places: Iterable[TopicPartition]) -> None:
        """Own these partitions no longer; what is in hand of them will be read again, by whoever owns them then."""
        places = set(places)
        self._waiting = deque(record for record in self._waiting if record[:2] not in places)
        # Ids in hand would make their next reading a repetition. Others have been handled, whoever comes next.
        self._ids.drop({position.partition for position in self._hand if position[:2] in places})
        for place in places:
            self._offsets.revoke(place)

    def _wanted(self, record: Record) -> Prediction | None:
        if isinstance(record, CorruptBatch):
            self._pass_over(record, record.what)
            return None
        try:
            if self._application is not None and peek_texts(record.value, 2)[1] != self._application:
                return None
            prediction = self._codec.decode(Prediction, record.value)
        except DecodeError as error:
            self._pass_over(record, str(error))
            return None
        if not self._ids.add(record.partition, f"{prediction.query_id}\0{prediction.reply_token}"):
            self.repeated += 1
            return None
        return prediction

    def _pass_over(self, record: Record, why: str) -> None:
        self.undecodable += 1
        _log.warning("skipped a record that is no prediction, at %s: %s", record.position, why)
