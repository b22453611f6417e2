"""Batches that nobody ends: given up once, by looks and not by time."""

from __future__ import annotations

import asyncio

from streams.operators.contract import Predict, Predicted, Ran
from streams.runtime.ports import ExecutorEvents
from streams.runtime.role.batch_watch import LOOK_S, BatchWatch
from tests.fakes import FakeExecutors
from tests.virtual import in_virtual_time

PATIENCE_US = 5_000_000
LOOKS = round(2 * PATIENCE_US / 1e6 / LOOK_S)


class Heard:
    """Executors that end nothing, watched, and what is heard of them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.told: list[tuple[int, Ran]] = []
        self.executors = FakeExecutors()
        self.watch = BatchWatch(self.executors)
        self.watch.connect(
            ExecutorEvents(lambda predict, ran: self.told.append((predict.batch_id, ran)), lambda *_: None), tasks
        )

    def look(self, times: int) -> None:
        """Look so often."""
        for _ in range(times):
            self.watch.look()


def batch(number: int, joined: tuple[Predict, ...] = ()) -> Predict:
    """Make a batch of two rows."""
    return Predict(number, "m", "1", ["a", "b"], PATIENCE_US, joined=joined)


@in_virtual_time
async def test_a_batch_that_was_given_up_fails_once_and_its_late_end_is_not_told() -> None:
    """The kernel hears of each batch once, whatever comes."""
    async with asyncio.TaskGroup() as tasks:
        heard = Heard(tasks)
        heard.watch.predict(batch(1))
        heard.look(LOOKS + 1)
        assert not heard.told
        heard.look(1)
        ((number, ran),) = heard.told
        assert (number, len(ran.results.outcomes), ran.is_lost) == (1, 2, False)
        assert ran.results.fault is not None
        heard.executors.events.predicted(batch(1), Ran(Predicted.failed(2, "late"), 0))
        heard.look(2 * LOOKS)
        assert len(heard.told) == 1
        assert heard.watch.statistics() == {"batches_given_up_total{model=m}": 1}


@in_virtual_time
async def test_a_batch_that_ends_is_told_and_forgotten() -> None:
    """Nothing is given up that has ended."""
    async with asyncio.TaskGroup() as tasks:
        heard = Heard(tasks)
        heard.watch.predict(batch(1))
        heard.executors.events.predicted(batch(1), Ran(Predicted.failed(2, ""), 7))
        heard.look(2 * LOOKS)
        assert [(number, ran.took_us) for number, ran in heard.told] == [(1, 7)]


@in_virtual_time
async def test_parts_of_a_batch_have_the_patience_of_all_of_them() -> None:
    """They are waited for one after the other."""
    async with asyncio.TaskGroup() as tasks:
        heard = Heard(tasks)
        heard.watch.predict(batch(1, (batch(2),)))
        heard.look(2 * LOOKS + 1)
        assert not heard.told
        heard.look(1)
        assert [number for number, _ in heard.told] == [1, 2]
