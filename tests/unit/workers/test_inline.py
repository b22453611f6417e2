"""Models inside a role: an asker that breaks over an answer gets a failure instead when it asks again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deploy.state.desired import model_record
from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelPredictions, Outcome, Tensor
from streams.operators.contract import HandOver, Record
from tests.fakes import ScriptedKernel
from tests.samples import model_query
from workers.inline import Inline
from workers.packages.packaging import package_function
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streams.operators.contract import Effects

CODEC = Codec()
MODEL_QUERIES = topics.model_queries("parity")


def now_us() -> int:
    """Tell the time."""
    return time.time_ns() // 1000


class Asker(ScriptedKernel):
    """Asks the model for every query, and breaks over answers that are not failures."""

    def __init__(self) -> None:
        super().__init__(decide=self.take)
        self.answered: asyncio.Queue[Outcome] = asyncio.Queue()

    def take(self, record: Record) -> Effects:
        """Ask."""
        if record.topic == topics.QUERIES:
            row = Tensor.of(np.zeros(2, np.float32))
            return [HandOver(MODEL_QUERIES, 0, model_query("q", 0, now_us() + 60_000_000, row))]
        return []

    def hand_over(self, topics: frozenset[str]) -> None:
        """Hand over everything."""

    def on_handed(self, handed: Sequence[HandOver], now_us: int) -> Effects:
        """Take the answer."""
        [(_, _, batch)] = handed
        assert isinstance(batch, ModelPredictions)
        (outcome,) = batch.outcomes
        self.answered.put_nowait(outcome)
        if outcome is Outcome.OK:
            raise ZeroDivisionError("combiner")
        return []


class Loop:
    """As much of a role's loop as a model's task uses."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def call(self, what: str, decide: Callable[[], Effects]) -> Exception | None:
        """Call the kernel."""
        try:
            decide()
        except ZeroDivisionError as fault:
            self.faults.append(f"{what}: {fault}")
            return fault
        return None


async def test_an_answer_that_breaks_the_asker_is_a_failure_the_next_time(tmp_path: Path) -> None:
    """The model's task goes on, and the query that is read and asked again gets its outcome."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", np.zeros((1, 2), np.float32))
    asker, loop = Asker(), Loop()
    inline = Inline(asker, [model_record(tmp_path / "parity")], "selection-1", WorkerSettings(), CODEC, now_us)
    task = asyncio.create_task(inline.companions[0](cast("Any", loop)))
    outcomes = []
    for offset in range(2):
        inline.kernel.on_records([Record(topics.QUERIES, 0, offset, now_us(), None, b"")], now_us())
        outcomes.append(await asyncio.wait_for(asker.answered.get(), 30))
    task.cancel()
    assert outcomes == [Outcome.OK, Outcome.FAILED]
    assert loop.faults == ["answers of an inline model: combiner"]
