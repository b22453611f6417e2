"""Rows that a package keeps are answered before its process takes queries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.cli.packing import asked_rows, warm_up_rows
from deploy.errors import UsageError
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Model, Outcome, Query, Tensor
from streams.operators.contract import Predicted, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.definition import Role
from streams.runtime.role.local import Local, LocalCodec
from streams.runtime.role.loop import RoleLoop
from streams.testing.broker import FakeBroker
from streams.trace.manifest import TraceManifest
from streams.trace.writer import TraceWriter
from tests.fakes import FakeBroadcast, FakeConsumer, fake_ports
from tests.virtual import VirtualClock, elapse, in_virtual_time
from workers import manifest as manifests
from workers.errors import PackageError
from workers.executors.factory import executor_of
from workers.executors.models import ModelExecutors
from workers.executors.predictor import WARM_UP_S, warm_up
from workers.executors.thread import OffLoopExecutor, Timed
from workers.kernel.model.worker import ModelWorker
from workers.packages.loading import checked, load_package
from workers.packages.packaging import package_function
from workers.packages.warm_up import FILE, MOST_ROWS
from workers.runner import Worker, worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from schemas.records import Input
    from streams.runtime.ports import Rebalanced

CODEC = Codec()
SAMPLE = np.ones((2, 3), dtype=np.float32)
MODEL = Model("digits", "1", "function", "/nowhere", "", "label", "float32", (1,))
ASKED: list[int] = []  # rows of each call of `noted`


def noted(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0, and note how many rows were asked; fails on a row that begins with 13."""
    ASKED.append(len(rows))
    if (rows[:, 0] == 13).any():
        raise ValueError("13")
    return np.zeros(len(rows), dtype=np.int64)


def lengths(rows: Sequence[str]) -> list[int]:
    """Answer how long texts are."""
    return [len(row) for row in rows]


def package(folder: Path, function: str = "noted", sample: Any = SAMPLE, **more: Any) -> Path:
    """Package a function of this module."""
    package_function(f"{__name__}:{function}", folder, "net", "1", sample, **more)
    return folder


def rows(count: int) -> NDArray[np.float32]:
    """Return rows of three numbers."""
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3) + 100


def test_a_package_keeps_the_rows_it_is_given_and_pins_them(tmp_path: Path) -> None:
    """As they travel; a changed file is refused before anything is loaded."""
    folder = package(tmp_path / "net", warm_up=rows(5))
    assert load_package(folder).warm_up == tuple(Tensor.of(row) for row in rows(5))
    (folder / FILE).write_bytes(b"changed")
    with pytest.raises(PackageError, match="is not the file that was packaged"):
        load_package(folder)


def test_a_file_of_other_bytes_that_is_pinned_is_refused_when_it_is_deployed(tmp_path: Path) -> None:
    """The message says what to do."""
    folder = package(tmp_path / "net")
    (folder / FILE).write_bytes(b"no record")
    manifests.write(folder, manifests.read(folder))
    with pytest.raises(PackageError, match="holds no rows: package the model again"):
        checked(folder)


def test_a_package_keeps_its_sample_where_no_rows_are_given(tmp_path: Path) -> None:
    """So that whoever loads it has real rows; texts are kept as texts."""
    assert len(load_package(package(tmp_path / "net")).warm_up) == len(SAMPLE)
    assert load_package(package(tmp_path / "texts", "lengths", ["a", "bc"])).warm_up == ("a", "bc")


def test_a_package_keeps_no_rows_where_that_is_said(tmp_path: Path) -> None:
    """Rows may be private."""
    folder = package(tmp_path / "net", warm_up=warm_up_rows("none", "net", SAMPLE))
    assert load_package(folder).warm_up == ()
    assert not (folder / FILE).exists()


def test_a_package_keeps_a_thousand_rows_at_most(tmp_path: Path) -> None:
    """The first ones."""
    folder = package(tmp_path / "net", warm_up=rows(MOST_ROWS + 7))
    assert load_package(folder).warm_up == tuple(Tensor.of(row) for row in rows(MOST_ROWS))


def test_rows_that_the_model_fails_on_are_not_kept(tmp_path: Path) -> None:
    """Of a recorded trace some may be such; if all are, the package is refused, and nothing of it is left."""
    bad = np.full((1, 3), 13, dtype=np.float32)
    folder = package(tmp_path / "net", warm_up=np.concatenate([rows(2), bad]))
    assert len(load_package(folder).warm_up) == 2
    with pytest.raises(PackageError, match="does not answer the rows to warm up with"):
        package(tmp_path / "bad", warm_up=bad)
    assert not (tmp_path / "bad").exists()


def test_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    """With the row and what the model takes."""
    with pytest.raises(PackageError, match=r"row 0 of the rows to warm up with does not fit.*float32\[3\]"):
        package(tmp_path / "net", warm_up=np.ones((2, 4), dtype=np.float32))


@pytest.mark.parametrize("sizes", [(), (4, 16)])
async def test_whoever_loads_a_package_has_its_rows_answered_in_batches_of_many_sizes(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """Before it counts as loaded: 1, 2, 4 and so on; a compiled model in the sizes that it takes."""
    folder = package(tmp_path / "net", warm_up=rows(20))
    model = Model("net", "1", "function", str(folder), manifests.digest(folder), "label", "float32", (3,))
    how = WorkerSettings(allowed_batch_sizes={"net": sizes} if sizes else {})
    executor = executor_of(model, how, lambda: 0, lambda _: None)
    ASKED.clear()
    await executor.start()
    expected = [4, 16, 4, 4, 4, 16, 16] if sizes else [1, 1, 2, 4, 8, 5]
    assert expected == ASKED
    await executor.stop()


def test_a_slow_model_is_warmed_up_for_a_bounded_time() -> None:
    """A process that starts late is no better than a cold one."""
    now_s = 0.0

    def predict(batch: Sequence[Input]) -> Predicted:
        nonlocal now_s
        now_s += len(batch)
        return Predicted((Outcome.OK,) * len(batch), np.zeros(len(batch)))

    assert warm_up(predict, [""] * 1_000, lambda: now_s) == 15
    assert WARM_UP_S <= now_s < 2 * WARM_UP_S


class Slow(OffLoopExecutor):
    """Takes 3 s to load and to be warmed up."""

    ready = False

    async def start(self) -> None:
        """Take the time."""
        await elapse(3.0)
        self.ready = True

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Answer."""
        return Timed(Predicted((Outcome.OK,) * len(inputs), np.zeros(len(inputs))), 100)

    async def stop(self) -> None:
        """Do nothing."""


class Joining(FakeConsumer):
    """Notes when its group is joined (us)."""

    joined_us = 0

    async def start(self, rebalanced: Rebalanced) -> None:
        """Join."""
        self.joined_us = VirtualClock().now_us()
        await super().start(rebalanced)


@pytest.mark.parametrize("is_inside", [False, True])
@in_virtual_time
async def test_a_process_joins_its_group_when_its_models_are_loaded_and_warm(*, is_inside: bool) -> None:
    """A worker, and selection with a model inside: no query waits for a model that is not ready."""
    broker, slow = FakeBroker(), Slow()
    topic = topics.QUERIES if is_inside else topics.model_queries("digits")
    consumer = Joining(broker, [(topic, 0)])
    ports = fake_ports(broker, consumer, encode=CODEC.encode, broadcast=FakeBroadcast(broker, (topics.MODELS,)))
    role: RoleLoop | Worker
    if is_inside:
        codec = LocalCodec(CODEC)
        settings = SelectionSettings(1, inside=frozenset({topics.model_queries("digits")}))
        kernel = Local(Selection(codec, settings), {"digits": ModelWorker(codec, MODEL, "s")}, codec)
        ports = replace(ports, executors=ModelExecutors(lambda *_: slow))
        role = RoleLoop(Role("selection", "s", (topic,), (topics.MODELS,)), kernel, ports)
    else:
        role = worker(MODEL, "w", WorkerSettings(), ports, CODEC, make=lambda _: slow)
    start_us, stop = VirtualClock().now_us(), asyncio.Event()
    running = asyncio.create_task(role.run(stop))
    await elapse(5.0)
    stop.set()
    await running
    assert consumer.joined_us - start_us >= 3_000_000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace in which application `app` asks the model `net` and `other` does not."""
    asked = [Query(f"q{n}", "other" if n % 2 else "app", Tensor.of(rows(20)[n])) for n in range(20)]
    asked.append(Query("text", "app", "a text"))
    found = [Record(topics.QUERIES, 0, n, n, b"", CODEC.encode(query)) for n, query in enumerate(asked)]
    applications = [Application("app", ("net",)), Application("other", ("tree",))]
    found += [
        Record(topics.APPLICATIONS, 0, n, 0, each.name.encode(), CODEC.encode(each))
        for n, each in enumerate(applications)
    ]
    with TraceWriter(tmp_path / "trace", TraceManifest("skysail", "0.1.0")) as writer:
        for topic in (topics.QUERIES, topics.APPLICATIONS):
            writer.expect(topic, {0: 0})
        writer.add(found)
        writer.write()
    return tmp_path / "trace"


def test_the_rows_of_a_recorded_trace_are_those_that_the_model_was_asked(trace: Path) -> None:
    """Of the applications that ask it, and of its form."""
    assert len(asked_rows(trace, "net")) == 11
    found = warm_up_rows(str(trace), "net", SAMPLE)
    assert np.array_equal(np.asarray(found), rows(20)[::2])


def test_a_trace_without_a_fitting_row_is_refused(trace: Path) -> None:
    """The message names the model."""
    with pytest.raises(UsageError, match=r"no query in .* has an input that net takes"):
        warm_up_rows(str(trace), "net", np.ones((1, 7), dtype=np.float32))
