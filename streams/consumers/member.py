"""A member of a group that reads predictions: polls, commits after handling, and hands over at rebalances.

next(n) ──▶ what was handed out is handled ──▶ (commit, once a second) ──▶ poll until something is wanted ──▶ batch
revoked ──▶ wait until what is in hand is handled, for seconds ──▶ commit ──▶ forget
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from schemas import topics
from streams.runtime.errors import BrokerUnavailableError, LogSetBackError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from schemas.records import Prediction
    from streams.consumers.deliveries import Deliveries
    from streams.operators.contract import Record
    from streams.runtime.ports import Consumer, LogPositions, TopicPartition

_log = logging.getLogger(__name__)

_POLL_MS = 500
_RETRY_S = 0.25


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member behaves.

    Attributes:
        begin: where a group begins that has never committed: with the oldest prediction that is kept, or behind the
            newest one.
        commit_s: offsets are committed so often at most, and at the end.
        hand_over_s: how long a rebalance waits for what is in hand; shorter than the group's rebalance timeout.
        leave_s: how long leaving may take.
    """

    begin: Literal["oldest", "newest"] = "oldest"
    commit_s: float = 1.0
    hand_over_s: float = 6.0
    leave_s: float = 5.0


class Member:
    """Reads predictions as one of a group; implements `ports.Rebalanced`.

    Args:
        consumer: of `predictions`.
        positions: tells where logs end.
        deliveries: what has been read.
        settings: how it behaves.
    """

    def __init__(
        self, consumer: Consumer, positions: LogPositions, deliveries: Deliveries, settings: MemberSettings
    ) -> None:
        self._consumer, self._positions = consumer, positions
        self._deliveries, self._settings = deliveries, settings
        self._empty_handed = asyncio.Event()
        self._empty_handed.set()
        self._polling: asyncio.Task[tuple[int, list[Record]]] | None = None
        self._commit_at = 0.0
        self._placed_at: float | None = None  # when partitions were spread last
        self._is_asked = False

    async def start(self) -> None:
        """Join the group.

        Raises:
            BrokerUnavailableError: no broker answers, or the topic is not there.
        """
        await self._consumer.start(self)

    async def next(self, at_most: int, idle_s: float | None = None) -> list[Prediction]:
        """Return what is there, at least one prediction; what was returned before is handled.

        Args:
            at_most: so many.
            idle_s: return none if nothing wanted has come for so long; None = wait for ever.

        Raises:
            RuntimeError: another task is waiting for predictions of this member.
            StoppedError: the topic cannot be read.
        """
        if self._is_asked:
            raise RuntimeError("another task is reading here: open a consumer for each")
        self._is_asked = True
        try:
            self._handled()
            return await self._found(at_most, idle_s)
        finally:
            self._is_asked = False

    async def stop(self, *, is_handled: bool) -> None:
        """Commit and leave the group.

        Args:
            is_handled: what was returned last; if it is not, the group reads it again.
        """
        if is_handled:
            self._handled()
        else:
            self._deliveries.drop_hand()
            self._empty_handed.set()
        self._deliveries.drop_waiting()
        await self._commit()
        await self._consumer.stop(self._settings.leave_s)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def on_assigned(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int | None]:
        """Begin where the group has stopped; see `ports.Rebalanced`."""
        self._placed_at = asyncio.get_running_loop().time()
        new = [place for place, offset in committed.items() if offset is None]
        begins = await self._ends(new) if new and self._settings.begin == "newest" else {}
        starts = {place: begins.get(place) if offset is None else offset for place, offset in committed.items()}
        self._deliveries.assigned({place: start or 0 for place, start in starts.items()})
        if begins:  # else another rebalance would begin behind what has come until then
            await self._consumer.commit(begins)
        return starts

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over: what is in hand has some seconds to be handled; see `ports.Rebalanced`."""
        self._deliveries.drop_waiting()
        try:
            async with asyncio.timeout(self._settings.hand_over_s):
                await self._empty_handed.wait()
        except TimeoutError:
            _log.warning("predictions are being handled for long: others of the group will read them, too")
        await self._commit()
        self._deliveries.revoked(partitions)

    def _handled(self) -> None:
        self._deliveries.handled()
        self._empty_handed.set()

    async def _found(self, at_most: int, idle_s: float | None) -> list[Prediction]:
        since = asyncio.get_running_loop().time()
        while True:
            await self._commit_if_due()
            if found := self._deliveries.hand_out(at_most):
                self._empty_handed.clear()
                return found
            if idle_s is not None and self._is_idle(since, idle_s):
                await self._commit()
                return []
            await self._poll()

    def _is_idle(self, since: float, idle_s: float) -> bool:
        """Whether all has been read, and nothing has come for so long since then and since partitions were spread."""
        if self._placed_at is None or asyncio.get_running_loop().time() < max(since, self._placed_at) + idle_s:
            return False
        vitals = self._consumer.vitals()
        return not vitals.lag and not vitals.failures

    async def _poll(self) -> None:
        """Take what the next poll brings. Whoever waits may be cancelled, but not the poll: the next call takes it."""
        if self._polling is None:
            self._polling = asyncio.create_task(self._polled(), name="consumer.poll")
        generation, records = await asyncio.shield(self._polling)
        self._polling = None
        if generation == self._consumer.generation:  # else they are read again
            self._deliveries.take(records)

    async def _polled(self) -> tuple[int, list[Record]]:
        try:
            records = await self._consumer.poll(_POLL_MS)
        except LogSetBackError as fault:
            _log.warning("%s", fault)
            self._deliveries.set_back(fault.starts)
            return self._consumer.generation, []
        return self._consumer.generation, cast("list[Record]", records)  # no topic is wanted in whole batches

    async def _commit_if_due(self) -> None:
        if asyncio.get_running_loop().time() >= self._commit_at:
            await self._commit()

    async def _commit(self) -> None:
        self._commit_at = asyncio.get_running_loop().time() + self._settings.commit_s
        offsets = self._deliveries.committable()
        if offsets and await self._consumer.commit(offsets):
            self._deliveries.committed(offsets)

    async def _ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        while True:
            try:
                return await self._positions.ends(places)
            except BrokerUnavailableError as fault:
                _log.warning("where %s ends is not known yet: %s", topics.PREDICTIONS, fault)
                await asyncio.sleep(_RETRY_S)
