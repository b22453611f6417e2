"""Copies of observations: recognised by query id for as long as they may follow, in a bounded number of bytes.

A joiner that ended may write its last observations again. Each partition remembers the ids of one window of its time.
If all together take more than they may, the partition that has most forgets its oldest second: a copy of what was
forgotten counts once more, and `forgotten` says of how many observations that might be.
"""

from __future__ import annotations

from collections import deque

from streams.operators.ids import ID_BYTES, SeenIds


class _Ids(SeenIds):
    """The ids of one partition, with how many were taken in each second of its time."""

    __slots__ = ("held", "seconds")

    def __init__(self, window_us: int) -> None:
        super().__init__(window_us)
        self.held = 0
        self.seconds: deque[list[int]] = deque()  # the second and its ids, the oldest first

    def add(self, query_id: str, time_us: int) -> bool:
        is_first = super().add(query_id, time_us)
        seconds, newest = self.seconds, self._newest
        if not seconds or seconds[-1][0] != newest:
            while seconds and seconds[0][0] < self._begin:
                self.held -= seconds.popleft()[1]
            seconds.append([newest, 0])
        seconds[-1][1] += 1  # a copy, too, takes the place of a newer one
        self.held += 1
        return is_first

    def forget(self) -> int:
        """Forget the oldest second; returns how many ids it had."""
        second, count = self.seconds.popleft()
        self._begin = second + 1
        self.held -= count
        return count


class Copies:
    """Tells copies of observations from first ones.

    Args:
        window_us: how long copies may follow; the learner's.
        capacity_bytes: that the ids of all partitions may take, estimated.

    Attributes:
        window_us: as given.
        held: ids that are remembered.
        forgotten: ids that had to be forgotten before their time.
    """

    def __init__(self, window_us: int, capacity_bytes: int) -> None:
        self.window_us = window_us
        self._capacity = max(1, capacity_bytes // ID_BYTES)
        self._partitions: dict[int, _Ids] = {}
        self.held = 0
        self.forgotten = 0

    def has(self, query_id: str, time_us: int, partition: int) -> bool:
        """Tell whether an observation was seen before, and remember it.

        Args:
            query_id: of the observation.
            time_us: of its record; those of a partition come in its order.
            partition: of its record.
        """
        ids = self._partitions.get(partition)
        if ids is None:
            ids = self._partitions[partition] = _Ids(self.window_us)
        before = ids.held
        is_first = ids.add(query_id, time_us)
        self.held += ids.held - before
        while self.held > self._capacity:
            forgotten = max(self._partitions.values(), key=lambda each: each.held).forget()
            self.held -= forgotten
            self.forgotten += forgotten
        return not is_first
