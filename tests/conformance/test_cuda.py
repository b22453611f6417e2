"""The CUDA port on the CPU: streams, events and graphs are fakes, the tensors and buffers are torch's.

What only a GPU shows is not tested: that copies and kernels run side by side, and that a real capture works.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workers.manifest import Manifest, Signature
from workers.runtimes.pipeline import DevicePipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from workers.runtimes import torch as runtimes  # noqa: E402 - needs torch
from workers.runtimes.cuda import Cuda  # noqa: E402

WIDTH = 3


class FakeCuda:
    """What `torch.cuda` offers, done at once; it notes the order of what streams and events are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.replays = 0
        self.is_capturing = False
        self.captured: tuple[Any, Any] = (None, None)  # the rows and answers of the module's call in a capture

    def Stream(self, _device: Any) -> Any:  # noqa: N802 - torch's name
        """Return a stream."""
        return FakeStream(self, f"stream {sum(told.startswith('new') for told in self.told)}")

    def Event(self, *, blocking: bool = False) -> Any:  # noqa: N802
        """Return an event; those that a thread waits for must let it sleep."""
        return FakeEvent(self, "done" if blocking else "arrived")

    def CUDAGraph(self) -> Any:  # noqa: N802
        """Return a graph."""
        return FakeGraph(self)

    def graph_pool_handle(self) -> object:
        """Return nothing in particular."""
        return object()

    def synchronize(self, _device: Any) -> None:
        """Wait for nothing."""

    @contextlib.contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        """Note on which stream the body works."""
        self.told.append(f"on {stream.name}")
        yield

    @contextlib.contextmanager
    def graph(self, graph: FakeGraph, **_: Any) -> Iterator[None]:
        """Record the module's call."""
        self.is_capturing = True
        try:
            yield
        finally:
            self.is_capturing = False
        graph.call = self.captured


class FakeStream:
    """A stream without work."""

    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self._cuda, self.name = cuda, name
        cuda.told.append(f"new {name}")

    def wait_event(self, event: FakeEvent) -> None:
        """Note it."""
        self._cuda.told.append(f"{self.name} waits: {event.name}")

    def synchronize(self) -> None:
        """Wait for nothing."""


class FakeEvent:
    """An event that has happened when it is recorded."""

    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self._cuda, self.name = cuda, name

    def record(self, stream: FakeStream) -> None:
        """Note it."""
        self._cuda.told.append(f"{stream.name} records: {self.name}")

    def synchronize(self) -> None:
        """Note it."""
        self._cuda.told.append(f"host waits: {self.name}")


class FakeGraph:
    """Replays by calling the module's arithmetic again, into the tensor of the capture."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.call: tuple[Any, Any] = (None, None)

    def replay(self) -> None:
        """Write the answers."""
        self._cuda.replays += 1
        rows, answers = self.call
        answers.copy_(doubled(rows))


def doubled(rows: Any) -> Any:
    """Return the sum and the double sum of each row."""
    sums = rows.float().sum(dim=1)
    return torch.stack([sums, 2 * sums], dim=1)


def module(cuda: FakeCuda) -> Any:
    """Return the arithmetic as a module that a fake capture sees."""

    def call(rows: Any) -> Any:
        answers = doubled(rows)
        if cuda.is_capturing:
            cuda.captured = rows, answers
        return answers

    return call


def device(cuda: FakeCuda, call: Any = None, dtype: Any = None) -> Cuda:
    """Return the port over fakes."""
    return Cuda(torch.device("cpu"), call or module(cuda), (WIDTH,), dtype or torch.float32, cuda)


def batch(rows: int) -> NDArray[np.float32]:
    """Return different rows."""
    return np.arange(rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH)


def expected(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the answers."""
    return np.stack([rows.sum(axis=1), 2 * rows.sum(axis=1)], axis=1)


def test_batches_of_any_size_are_answered_whole_and_in_parts() -> None:
    """Buffers grow, and what a batch leaves in them is not an answer to the next one."""
    pipeline = DevicePipeline(device(FakeCuda()), least_rows=2)
    for rows in (3, 40, 1, 40, 9, 200, 40):
        for _ in range(10):
            assert np.allclose(pipeline.answer(batch(rows)), expected(batch(rows)))


def test_answers_are_the_callers() -> None:
    """The pinned buffer is used again by the next batch."""
    port = DevicePipeline(device(FakeCuda()))
    first = port.answer(batch(2))
    port.answer(np.zeros((2, WIDTH), np.float32))
    assert np.allclose(first, expected(batch(2)))


def test_the_module_waits_for_the_copy_and_the_host_for_the_answers() -> None:
    """Copies in have a stream of their own; answers leave behind the module."""
    cuda = FakeCuda()
    port = device(cuda)
    cuda.told.clear()
    port.fill(0, batch(2))
    port.copy_in(0)
    port.run(0)
    port.copy_out(0)
    port.result(0)
    assert cuda.told == [
        *("on stream 0", "stream 0 records: arrived"),
        *("stream 1 waits: arrived", "on stream 1", "on stream 1", "stream 1 records: done"),
        "host waits: done",
    ]


def test_recorded_sizes_are_replayed_and_others_run() -> None:
    """Of a size between them the module is called."""
    cuda = FakeCuda()
    pipeline = DevicePipeline(device(cuda))
    with torch.inference_mode():
        assert pipeline.prepare((1, 4)) == ""
        cuda.replays = 0
        for rows in (4, 1, 4):
            assert np.allclose(pipeline.answer(batch(rows)), expected(batch(rows)))
        assert cuda.replays == 3
        assert np.allclose(pipeline.answer(batch(3)), expected(batch(3)))
        assert cuda.replays == 3


def test_whole_numbers_are_recorded_too() -> None:
    """They may be places in a table, so that only zeros are sure to be allowed."""
    cuda = FakeCuda()
    pipeline = DevicePipeline(device(cuda, dtype=torch.int64))
    rows = batch(4).astype(np.int64)
    assert pipeline.prepare((4,)) == ""
    assert np.allclose(pipeline.answer(rows), expected(rows))


def test_a_module_that_cannot_be_captured_runs_without_a_graph() -> None:
    """One that reads its rows on the host, for instance."""
    cuda = FakeCuda()

    def branching(rows: Any) -> Any:
        if cuda.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        return doubled(rows)

    pipeline = DevicePipeline(device(cuda, branching))
    assert "not permitted" in pipeline.prepare((4,))
    assert np.allclose(pipeline.answer(batch(4)), expected(batch(4)))


def test_a_graph_that_answers_otherwise_is_not_kept() -> None:
    """A module that counts its calls, for instance: a graph repeats one of them."""
    cuda, calls = FakeCuda(), iter(range(100))

    def counting(rows: Any) -> Any:
        answers = doubled(rows) + next(calls)
        if cuda.is_capturing:
            cuda.captured = rows, answers
        return answers

    pipeline = DevicePipeline(device(cuda, counting))
    assert pipeline.prepare((4,)) == "for 4 rows its graph answers otherwise than the module"
    replays = cuda.replays
    pipeline.answer(batch(4))
    assert cuda.replays == replays


def test_a_model_that_cannot_be_compiled_says_so_and_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first line of the compiler's error is enough."""

    def failing(_: Any) -> Any:
        def call(_: Any) -> Any:
            raise RuntimeError("no C++ compiler\nand many more lines")

        return call

    monkeypatch.setattr(torch, "compile", failing)
    manifest = Manifest(
        "net", "1", "torch", Signature("tensor", "float32", (WIDTH,)), "scores", options={"compile": True}
    )
    runtime = runtimes.TorchRuntime(manifest, torch.nn.Linear(WIDTH, 2), torch.device("cpu"), 1)
    with caplog.at_level(logging.WARNING):
        scores = [runtime.predict_batch(batch(2)).scores for _ in range(2)]
    assert np.array_equal(*map(np.asarray, scores))
    assert [record.getMessage() for record in caplog.records] == [
        "net 1 cannot be compiled and runs as it is: RuntimeError: no C++ compiler"
    ]


class Anywhere(torch.nn.Module):  # type: ignore[misc] # torch is imported on condition
    """A network that counts as being on a device that is none."""

    def __init__(self, cuda: FakeCuda, *, branches: bool = False) -> None:
        super().__init__()
        self._cuda, self._branches = cuda, branches
        self.seen: list[int] = []

    def to(self, *_: Any) -> Any:
        """Stay."""
        return self

    def forward(self, rows: Any) -> Any:
        """Answer, unless the network branches and is captured."""
        if self._cuda.is_capturing and self._branches:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.seen.append(len(rows))
        return module(self._cuda)(rows)


def beyond(monkeypatch: pytest.MonkeyPatch, network: Anywhere, cuda: FakeCuda, **options: Any) -> Any:
    """Return the runtime of a network beyond the CPU, over fakes."""
    monkeypatch.setattr(
        runtimes, "Cuda", lambda _, call, shape, dtype: Cuda(torch.device("cpu"), call, shape, dtype, cuda)
    )
    manifest = Manifest("net", "1", "torch", Signature("tensor", "float32", (WIDTH,)), "scores", options=options)
    return runtimes.TorchRuntime(manifest, network, torch.device("meta"), 1)


def test_a_runtime_on_a_device_goes_through_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the device, small batches are filled up, and no part has fewer rows."""
    cuda = FakeCuda()
    network = Anywhere(cuda)
    runtime = beyond(monkeypatch, network, cuda, min_rows=16)
    assert runtime.waits
    for rows in (1, 16, 100):
        for _ in range(10):
            assert np.allclose(runtime.predict_batch(batch(rows)).scores, expected(batch(rows)))
    assert min(network.seen) == 16
    assert 25 in network.seen


def test_a_runtime_replays_what_it_has_prepared_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Either way it answers."""
    for branches in (False, True):
        cuda = FakeCuda()
        runtime = beyond(monkeypatch, Anywhere(cuda, branches=branches), cuda)
        with caplog.at_level(logging.WARNING):
            runtime.prepare((4,))
        replays = cuda.replays
        assert np.allclose(runtime.predict_batch(batch(4)).scores, expected(batch(4)))
        assert (cuda.replays > replays) is not branches
    assert [record.getMessage() for record in caplog.records] == [
        "net 1: not all batches run as CUDA graphs: RuntimeError: operation not permitted when stream is capturing"
    ]


def test_on_the_cpu_there_is_nothing_to_prepare() -> None:
    """Graphs are the GPU's."""
    manifest = Manifest("net", "1", "torch", Signature("tensor", "float32", (WIDTH,)), "scores")
    runtime = runtimes.TorchRuntime(manifest, torch.nn.Linear(WIDTH, 2), torch.device("cpu"), 1)
    runtime.prepare((1, 4))
    assert len(runtime.predict_batch(batch(4)).answers) == 4
    assert not runtime.waits
