"""A store that is ahead of its log: the states are set aside, and what is in the log now is learnt, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, Observation, Observations
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import Learner
from streams.testing.broker import FakeBroker
from tests.fakes import FakePositions, FaultyStore
from tests.unit.streams.runtime.test_loop import running
from tests.virtual import elapse, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from schemas.records import PolicyState, Report

CODEC = Codec()
LOG = (topics.OBSERVATIONS, 0)
WINDOW_US = 60_000_000
DECISION = Decision((0,), 0, "sums", "exp3(eta=0.05,gamma=0.05,share=0.0001)", ("right", "wrong"), (0.5, 0.5))


class Ends(FakePositions):
    """Knows where the logs of a broker end."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__(100)
        self._broker = broker

    async def ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the ends."""
        return {partition: len(self._broker.logs[partition]) for partition in partitions}


class Store(FaultyStore):
    """Says what happens before it is asked for an offset."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    async def offset(self, partition: int) -> int | None:
        """Answer afterwards."""
        self._happens()
        return await super().offset(partition)


class Place:
    """A log that is learnt from, and what has come of it; `meanwhile` is written before the store is asked."""

    def __init__(self) -> None:
        self.broker, self.store = FakeBroker(), Store(self._happen)
        self.reports: list[Report] = []
        self.meanwhile: tuple[str, ...] = ()

    def learning(self) -> Any:
        """Run a learner for the time of a block."""
        return running(
            Learner(CODEC, WINDOW_US),  # type: ignore[arg-type]
            (topics.OBSERVATIONS,),
            broker=self.broker,
            role={"owns_states": True},
            store=self.store,
            positions=Ends(self.broker),
            hooks=(self.reports.append,),
        )

    def observe(self, *names: str) -> None:
        """Append an observation of each of these queries."""
        for name in names:
            losses = (ord(name[0]) % 16 / 16, None)  # each query teaches something else
            seen = Observation(name, "sums", None, DECISION, losses, losses[0], 0, JoinStatus.JOINED, 0, 0)
            self.broker.put(*LOG, CODEC.encode(Observations((seen,))))

    def _happen(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, ()
        self.observe(*meanwhile)

    def folded(self) -> dict[StateKey, PolicyState]:
        """Return what the log as it is now teaches."""
        log = self.broker.logs[LOG]
        seen = [(each.timestamp_us, one) for each in log for one in CODEC.decode(Observations, each.value).items]
        return {StateKey(0, name): state for name, state in fold(seen, WINDOW_US).items()}

    def is_folded(self) -> bool:
        """Tell whether the store has just that, and stands at the end."""
        return (self.store.states, self.store.offsets) == (self.folded(), {0: len(self.broker.logs[LOG])})


def test_a_log_that_was_made_anew_is_learnt_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    """While nobody learns: the role goes on, says it and counts it, and what was learnt before lies aside."""

    async def scene() -> None:
        place = Place()
        place.observe("a", "bb", "ccc")
        async with place.learning():
            await elapse(3)
        before = dict(place.store.states)
        place.broker.make_anew(topics.OBSERVATIONS)
        place.observe("d", "ee")
        async with place.learning():
            await elapse(10)
            assert place.is_folded()
            assert place.store.aside == {0: [before]}
        assert place.reports[-1].counters["states_set_aside_total"] == 1
        assert "ahead of the log, at 3" in caplog.text

    run(scene())


@pytest.mark.parametrize("meanwhile", [(), ("fff", "gggg", "h")])
def test_so_is_one_that_was_made_anew_while_it_was_read(meanwhile: tuple[str, ...]) -> None:
    """Also where the new log has grown beyond the old one before anybody looks at its end."""

    async def scene() -> None:
        place = Place()
        place.observe("a", "bb", "ccc")
        async with place.learning():
            await elapse(3)
            place.broker.make_anew(topics.OBSERVATIONS)
            place.observe("d", "ee")
            place.meanwhile = meanwhile
            await elapse(12)
            assert len(place.broker.logs[LOG]) == 2 + len(meanwhile)
            assert place.is_folded()
            place.observe("after")
            await elapse(3)
            assert place.is_folded()

    run(scene())


def test_a_log_that_lost_its_newest_records_teaches_nothing_twice() -> None:
    """Of three lessons the last is lost and comes again: it counts once, as the first two do."""

    async def scene() -> None:
        place = Place()
        place.observe("a", "bb", "ccc")
        async with place.learning():
            await elapse(3)
        del place.broker.logs[LOG][2:]
        async with place.learning():
            await elapse(8)
            assert place.is_folded()
            place.observe("ccc", "a")
            await elapse(3)
            assert place.is_folded()
            assert place.store.states[StateKey(0, "sums")].version == 3

    run(scene())


def test_an_end_that_a_new_leader_does_not_know_yet_sets_nothing_aside() -> None:
    """It is asked again for some seconds."""

    async def scene() -> None:
        place = Place()
        place.observe("a", "bb", "ccc")
        async with place.learning() as s:
            await elapse(3)
            lost = place.broker.logs[LOG].pop()
            s.consumer.positions.clear()
            rebalanced = s.task.get_loop().create_task(s.consumer.rebalance())
            await elapse(2)
            place.broker.logs[LOG].append(lost)
            await rebalanced
            await elapse(2)
            assert place.store.aside == {}
            assert place.is_folded()

    run(scene())
