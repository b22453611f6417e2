"""The worker's shell in virtual time: reads, predicts beside the loop, writes, commits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Report, Tensor
from streams.operators.contract import Predicted
from streams.testing.broker import FakeBroker
from streams.topology import worker_role
from tests.fakes import FakeConsumer, fake_ports
from tests.samples import model_query
from tests.virtual import VirtualClock, elapse, run
from workers.errors import HungError, PackageError
from workers.executors.thread import Timed
from workers.runner import worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

CODEC = Codec()
TOPIC = topics.model_queries("digits")
MODEL = Model("digits", "1", "function", "/nowhere", "", "label", "float32", (1,))
MS = 1_000


class ScriptedExecutor:
    """Takes 5 ms and 0.1 ms a row of virtual time and answers the row's number."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.starts = 0
        self.stopped = False
        self.fault: Exception | None = None
        self.start_fault: Exception | None = None
        self.lost_after = 0  # batches, and the model has to be loaded anew
        self.ready = False
        self.loading_s = 0.0

    async def start(self) -> None:
        """Count, and take a while."""
        self.starts += 1
        await elapse(self.loading_s)
        if self.start_fault is not None:
            raise self.start_fault
        self.ready = True
        if self.fault is not None and not isinstance(self.fault, HungError):
            raise self.fault

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Leave it to `run`."""
        return False

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Leave it to `run`."""
        return None

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict after a while."""
        if self.fault is not None:
            raise self.fault
        self.batches.append(len(inputs))
        self.ready = len(self.batches) != self.lost_after
        predict_us = 5 * MS + 100 * len(inputs)
        await elapse(predict_us / 1e6)
        numbers = [int(row.numpy()[0]) for row in inputs if isinstance(row, Tensor)]
        return Timed(Predicted((Outcome.OK,) * len(inputs), np.array(numbers)), predict_us)

    async def stop(self) -> None:
        """Remember."""
        self.stopped = True


class Silent(ScriptedExecutor):
    """Never tells what became of its first batch, whatever patience it is given."""

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict, except for the first time."""
        if not self.batches:
            self.batches.append(len(inputs))
            await asyncio.Event().wait()
        return await super().run(inputs, patience_s)


class Scene:
    """A worker on a fake broker with two partitions of its topic."""

    def __init__(self, **settings: int) -> None:
        self.broker = FakeBroker()
        self.consumer = FakeConsumer(self.broker, [(TOPIC, 0), (TOPIC, 1)])
        self.executor = ScriptedExecutor()
        self.stop = asyncio.Event()
        ports = fake_ports(self.broker, self.consumer, encode=CODEC.encode)
        self.worker = worker(MODEL, "worker-1", WorkerSettings(**settings), ports, CODEC, lambda _: self.executor)

    def ask(self, start: int, count: int, slack_us: int = 200 * MS) -> None:
        """Put queries `start`... on both partitions by turns; reply partitions by turns too."""
        for number in range(start, start + count):
            row = Tensor.of(np.array([number], dtype=np.float32))
            query = model_query(f"q{number}", number % 4, VirtualClock().now_us() + slack_us, row)
            self.broker.put(TOPIC, number % 2, CODEC.encode(query))

    def batches(self) -> list[ModelPredictions]:
        """Return every record that was written."""
        return [
            CODEC.decode(ModelPredictions, value)
            for partition in range(4)
            for value in self.broker.values(topics.MODEL_PREDICTIONS, partition)
        ]

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcome of each query; none has two."""
        pairs = [pair for batch in self.batches() for pair in zip(batch.query_ids, batch.outcomes, strict=True)]
        assert len(pairs) == len(dict(pairs))
        return dict(pairs)

    async def serve(self, seconds: float) -> None:
        """Run the worker for a while, then stop it in order."""
        running = asyncio.create_task(self.worker.run(self.stop))
        await elapse(seconds)
        self.stop.set()
        await running


def test_every_query_is_answered_once_and_committed() -> None:
    """Whatever the batches, each row's answer goes to its reply partition, then its offset is committed."""

    async def scene() -> None:
        scene = Scene()
        scene.ask(0, 400, slack_us=2_000 * MS)
        await scene.serve(2)
        assert scene.outcomes() == {f"q{i}": Outcome.OK for i in range(400)}
        for batch in scene.batches():
            assert isinstance(batch.answers, Tensor)
            assert [f"q{number}" for number in batch.answers.numpy().tolist()] == list(batch.query_ids)
        assert scene.broker.committed == {(TOPIC, 0): 200, (TOPIC, 1): 200}
        assert scene.executor.stopped

    run(scene())


def test_batches_grow_while_there_is_a_backlog() -> None:
    """AIMD climbs by two rows a batch under the objective of half the slack."""

    async def scene() -> None:
        scene = Scene()
        scene.ask(0, 200, slack_us=2_000 * MS)
        await scene.serve(2)
        assert scene.executor.batches[:5] == [1, 3, 5, 7, 9]

    run(scene())


def test_what_cannot_be_done_in_time_is_said_to_be_expired() -> None:
    """A backlog with little time left: some are answered, the others are told, all are committed."""

    async def scene() -> None:
        scene = Scene()
        scene.ask(0, 1_000, slack_us=60 * MS)
        await scene.serve(2)
        found = scene.outcomes()
        assert len(found) == 1_000
        assert set(found.values()) == {Outcome.OK, Outcome.EXPIRED}
        assert sum(scene.broker.committed.values()) == 1_000

    run(scene())


def test_a_fresh_query_is_answered_at_once() -> None:
    """Nothing lingers: one row, one batch, one record."""

    async def scene() -> None:
        scene = Scene()
        running = asyncio.create_task(scene.serve(3))
        await elapse(1)
        scene.ask(0, 1)
        await elapse(1.6)
        (batch,) = scene.batches()
        assert (batch.query_ids, batch.batch_rows, batch.queue_rows) == (("q0",), 1, 0)
        await running

    run(scene())


def test_garbage_is_dead_and_the_partition_moves_on() -> None:
    """The bytes go to the dead-letter topic untouched; the neighbours are answered."""

    async def scene() -> None:
        scene = Scene()
        scene.broker.put(TOPIC, 0, b"garbage")
        scene.ask(0, 2)
        await scene.serve(1.5)
        assert scene.broker.values(topics.dead_letters(TOPIC)) == [b"garbage"]
        assert scene.outcomes() == {"q0": Outcome.OK, "q1": Outcome.OK}
        assert scene.broker.committed[TOPIC, 0] == 2

    run(scene())


def test_what_waits_in_a_lost_partition_is_read_again() -> None:
    """A rebalance in the middle of a backlog loses nothing; only what was in hand is answered twice, alike."""

    async def scene() -> None:
        scene = Scene()
        scene.ask(0, 300, slack_us=5_000 * MS)
        running = asyncio.create_task(scene.serve(4))
        await elapse(0.1)
        await scene.consumer.rebalance()
        await running
        seen = {query_id for batch in scene.batches() for query_id in batch.query_ids}
        assert seen == {f"q{i}" for i in range(300)}
        assert scene.broker.committed == {(TOPIC, 0): 150, (TOPIC, 1): 150}

    run(scene())


def test_a_hung_model_ends_the_worker() -> None:
    """The supervisor starts a new one; what was not answered is not committed."""

    async def scene() -> None:
        scene = Scene()
        scene.executor.fault = HungError("the model did not answer")
        scene.ask(0, 2)
        with pytest.raises(ExceptionGroup) as caught:
            await scene.serve(1)
        assert caught.group_contains(HungError, depth=None)
        assert scene.broker.committed == {}
        assert scene.executor.stopped

    run(scene())


def test_a_batch_of_which_nobody_tells_the_end_is_given_up_and_the_model_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After twice its patience of 5 s its rows fail, the log and the report say so, and others are answered."""

    async def scene() -> None:
        scene = Scene()
        scene.executor = Silent()
        running = asyncio.create_task(scene.serve(14))
        await elapse(1)
        scene.ask(0, 1)
        await elapse(8)
        assert not scene.batches()
        scene.ask(1, 1, slack_us=10_000 * MS)
        await running
        assert scene.outcomes() == {"q0": Outcome.FAILED, "q1": Outcome.OK}
        report = CODEC.decode(Report, scene.broker.values(topics.REPORTS)[-1])
        assert report.counters["batches_given_up_total{model=digits}"] == 1

    run(scene())
    assert "nobody has told within 10 s what became of 1 rows" in caplog.text


def test_what_was_predicted_is_written_while_a_lost_model_is_loaded_again() -> None:
    """Queries of the last batch are not held up by the replacement; those that come meanwhile are answered after it."""

    async def scene() -> None:
        scene = Scene()
        scene.executor.lost_after = 1
        running = asyncio.create_task(scene.serve(8))
        await elapse(1)
        scene.executor.loading_s = 3.0
        scene.ask(0, 1)
        await elapse(1.6)
        assert scene.outcomes() == {"q0": Outcome.OK}, "and the replacement is not there yet"
        assert not scene.executor.ready
        scene.ask(1, 1, slack_us=10_000 * MS)
        await running
        assert scene.outcomes() == {"q0": Outcome.OK, "q1": Outcome.OK}
        assert scene.executor.starts == 2

    run(scene())


def test_a_lost_model_that_cannot_be_loaded_again_ends_the_worker() -> None:
    """Its queries would wait for nothing; the supervisor starts a new one, which says why it cannot load it."""

    async def scene() -> None:
        scene = Scene()
        scene.executor.lost_after = 1
        running = asyncio.create_task(scene.serve(4))
        await elapse(1)
        scene.executor.start_fault = PackageError("it is gone")
        scene.ask(0, 2)
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert caught.group_contains(PackageError, depth=None)

    run(scene())


@pytest.mark.parametrize("fault", [PackageError("it is not a model package"), ValueError("no rows"), OSError("gone")])
def test_a_package_that_cannot_be_loaded_fails_its_rows(fault: Exception) -> None:
    """Whatever it raises: those who ask hear of it at once, and another version can take over."""

    async def scene() -> None:
        scene = Scene()
        scene.executor.fault = fault
        running = asyncio.create_task(scene.serve(2))
        await elapse(0.5)
        scene.ask(0, 2)
        await running
        assert scene.outcomes() == {"q0": Outcome.FAILED, "q1": Outcome.FAILED}

    run(scene())


def test_reports_carry_cap_and_outcomes() -> None:
    """Who watches sees what the batcher does."""

    async def scene() -> None:
        scene = Scene()
        scene.ask(0, 50, slack_us=2_000 * MS)
        await scene.serve(1.5)
        report = CODEC.decode(Report, scene.broker.values(topics.REPORTS)[-1])
        assert (report.role, report.instance) == (worker_role("digits"), "worker-1")
        assert report.counters["rows_total{model=digits,outcome=ok}"] == 50
        assert report.gauges["batch_cap{model=digits}"] > 1

    run(scene())
