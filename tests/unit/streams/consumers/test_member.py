"""A member of a group, with a consumer that is a list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from streams.consumers.consume import consume
from streams.consumers.member import Member, MemberSettings
from streams.runtime.ports import Vitals
from tests.unit.streams.consumers.test_deliveries import PLACE, Deliveries, owning, prediction, record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.operators.contract import Record
    from streams.runtime.ports import Rebalanced, TopicPartition


class ListedConsumer:
    """Returns what was put into it, one list a poll; `commits` are those that were asked for."""

    def __init__(self) -> None:
        self.polls: asyncio.Queue[list[Record]] = asyncio.Queue()
        self.commits: list[dict[TopicPartition, int]] = []
        self.generation, self.lag = 1, 0
        self.is_gone = False

    async def start(self, rebalanced: Rebalanced) -> None:
        """Assign the one partition."""
        await rebalanced.on_assigned({PLACE: None})

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return the next list, or none after a moment."""
        try:
            async with asyncio.timeout(0.01):
                return await self.polls.get()
        except TimeoutError:
            return []

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Note the offsets."""
        self.commits.append(dict(offsets))
        return True

    def vitals(self) -> Vitals:
        """Return how much is unread."""
        return Vitals(1, self.lag, 0, 0, 0)

    async def stop(self, timeout_s: float) -> None:
        """Note it."""
        self.is_gone = True


class Ends:
    """Says where logs end."""

    async def ends(self, partitions: object) -> dict[TopicPartition, int]:
        """Return 7."""
        return {PLACE: 7}


def member(consumer: ListedConsumer, deliveries: Deliveries | None = None, **settings: object) -> Member:
    """Return a member that commits at once."""
    settings = {"commit_s": 0.0, **settings}
    return Member(consumer, Ends(), deliveries or owning(), MemberSettings(**settings))  # type: ignore[arg-type]


async def test_a_rebalance_waits_for_what_is_in_hand() -> None:
    """So that nobody reads it a second time, and its offset is committed before the partition goes."""
    consumer = ListedConsumer()
    joined = member(consumer)
    await joined.start()
    consumer.polls.put_nowait([record(0, prediction("a")), record(1, prediction("b"))])
    assert [one.query_id for one in await joined.next(1)] == ["a"]
    going = asyncio.create_task(joined.on_revoked([PLACE]))
    await asyncio.sleep(0.02)
    assert not going.done()
    assert await joined.next(1, idle_s=0.02) == []  # "b" goes with its partition
    await going
    assert consumer.commits == [{PLACE: 1}]


async def test_a_rebalance_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody who handles for minutes holds up nobody; what he has is read again."""
    consumer = ListedConsumer()
    joined = member(consumer, hand_over_s=0.02)
    await joined.start()
    consumer.polls.put_nowait([record(0, prediction("a"))])
    await joined.next(1)
    await joined.on_revoked([PLACE])
    assert consumer.commits == []
    assert "will read them, too" in caplog.text


async def test_records_of_an_assignment_that_is_over_are_dropped() -> None:
    """They were fetched before a rebalance, and are read again by whoever owns them then."""
    consumer = ListedConsumer()
    joined = member(consumer)
    await joined.start()
    asked = asyncio.create_task(joined.next(1))
    await asyncio.sleep(0)
    asked.cancel()
    consumer.polls.put_nowait([record(0, prediction("a"))])
    await asyncio.wait([asked])
    await asyncio.sleep(0.02)  # the poll has returned, in the old generation
    consumer.generation += 1
    assert await joined.next(1, idle_s=0.02) == []


async def test_whoever_waits_may_be_cancelled_and_nothing_is_lost() -> None:
    """The poll goes on, and the next call has what it brings."""
    consumer = ListedConsumer()
    joined = member(consumer)
    await joined.start()
    asked = asyncio.create_task(joined.next(1))
    await asyncio.sleep(0)
    asked.cancel()
    consumer.polls.put_nowait([record(0, prediction("a"))])
    await asyncio.wait([asked])
    assert [one.query_id for one in await joined.next(1)] == ["a"]


async def test_a_group_that_begins_with_what_is_new_commits_that_at_once() -> None:
    """Else a second rebalance before the first commit would begin later, and lose what came between."""
    consumer = ListedConsumer()
    joined = member(consumer, begin="newest")
    assert await joined.on_assigned({PLACE: None}) == {PLACE: 7}
    assert consumer.commits == [{PLACE: 7}]
    assert await joined.on_assigned({PLACE: 9}) == {PLACE: 9}


async def test_a_loop_does_not_end_while_there_is_something_to_read() -> None:
    """However long nothing comes: a broker may be slow."""
    consumer = ListedConsumer()
    consumer.lag = 3
    joined = member(consumer)
    await joined.start()
    asked = asyncio.create_task(joined.next(1, idle_s=0.02))
    await asyncio.sleep(0.1)
    assert not asked.done()
    consumer.lag = 0
    assert await asked == []


@pytest.mark.parametrize("is_handled", [True, False])
async def test_leaving_commits_what_is_handled(*, is_handled: bool) -> None:
    """Which the last ones are, unless an error has ended the block."""
    consumer = ListedConsumer()
    joined = member(consumer, commit_s=60.0)
    await joined.start()
    await joined.next(1, idle_s=0.02)
    consumer.polls.put_nowait([record(0, prediction("a"))])
    await joined.next(1)
    await joined.stop(is_handled=is_handled)
    assert (consumer.commits, consumer.is_gone) == ([{PLACE: 1}] if is_handled else [], True)


async def test_two_tasks_do_not_read_one_consumer() -> None:
    """Each would say that what the other one has is handled."""
    consumer = ListedConsumer()
    joined = member(consumer)
    await joined.start()
    asked = asyncio.create_task(joined.next(1, idle_s=0.05))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await joined.next(1)
    await asked


@pytest.mark.parametrize("group", ["", "a b", "-x", "ü"])
def test_a_group_that_kafka_does_not_take_is_refused(group: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ValueError, match="letters, digits"):
        consume("digits", group=group)


def test_a_consumer_outside_of_its_block_says_so() -> None:
    """And names what to write."""
    with pytest.raises(RuntimeError, match=r"with consume\(\.\.\.\)"):
        next(consume("digits", group="ledger"))
