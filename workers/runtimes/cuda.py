"""A CUDA device as a pipeline's port: two streams, pinned buffers, and graphs of sizes that are known beforehand.

    copying    copy in ─┐ arrived
    computing           └▶ run, or replay ─▶ copy out ─┐ done
    host       fill                                    └▶ result

Answers leave on the computing stream. They are small beside the rows, and on the copying stream they would hold up the
next rows. A thread that waits sleeps, so that it takes no core from the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from policies.foreign import pass_on_interrupt, told
from workers.runtimes.pipeline import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

_WARM_UPS = 3  # before a capture: libraries choose their kernels and allocate in the first calls
# A graph's answers differ from the module's by no more, of their size and of 1: it runs the same kernels.
_TOLERANCE = 1e-5


@dataclass(slots=True)
class _LaunchGraph:
    """Recorded launches: they read `rows` and write `answers`, wherever these lie in the device's memory."""

    launches: Any
    rows: torch.Tensor
    answers: torch.Tensor


@dataclass(slots=True)
class _BufferSlot:
    """Buffers that grow to the largest part, and what is under way in them."""

    arrived: Any
    done: Any
    host_rows: torch.Tensor
    rows: torch.Tensor
    host_answers: torch.Tensor | None = None
    answers: torch.Tensor | None = None
    count: int = 0
    graphs: dict[int, _LaunchGraph] = field(default_factory=dict)


class Cuda:
    """Runs a module on a GPU. Callers are in inference mode."""

    def __init__(
        self,
        device: torch.device,
        module: Callable[[torch.Tensor], torch.Tensor],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        cuda: Any = torch.cuda,
    ) -> None:
        """Allocate nothing yet.

        Args:
            device: where the module's weights are.
            module: takes (n, *shape) and returns n answers of float32 or float64.
            shape: of a row.
            dtype: of its numbers.
            cuda: what makes streams, events and graphs.
        """
        self._device, self._module = device, module
        self._shape, self._dtype = shape, dtype
        self._cuda = cuda
        self._is_pinned = device.type == "cuda"
        self._copying, self._computing = cuda.Stream(device), cuda.Stream(device)
        # Graphs may share memory: they run one after the other, and answers leave on their stream before the next one.
        self._pool = cuda.graph_pool_handle()
        self._slots = [self._slot() for _ in range(SLOTS)]
        cuda.synchronize(device)  # the weights were copied on another stream

    def fill(self, slot: int, rows: NDArray[np.generic]) -> None:
        """Write rows into the pinned buffer; it grows if need be."""
        place, count = self._slots[slot], len(rows)
        if len(place.host_rows) < count:
            place.host_rows = self._pinned((count, *self._shape), self._dtype)
        place.count = count
        place.host_rows[:count].copy_(torch.from_numpy(rows))

    def copy_in(self, slot: int) -> None:
        """Copy on the copying stream."""
        place = self._slots[slot]
        with self._cuda.stream(self._copying):
            self._rows_of(place).copy_(place.host_rows[: place.count], non_blocking=True)
            place.arrived.record(self._copying)

    def run(self, slot: int) -> None:
        """Launch the module, or replay its launches, on the computing stream."""
        place = self._slots[slot]
        self._computing.wait_event(place.arrived)
        with self._cuda.stream(self._computing):
            graph = place.graphs.get(place.count)
            if graph is None:
                place.answers = self._module(self._rows_of(place))
            else:
                graph.launches.replay()
                place.answers = graph.answers

    def copy_out(self, slot: int) -> None:
        """Copy the answers behind the module, on its stream."""
        place = self._slots[slot]
        answers = place.answers
        assert answers is not None, "run() comes first"
        host = place.host_answers
        if (
            host is None
            or len(host) < len(answers)
            or (host.shape[1:], host.dtype) != (answers.shape[1:], answers.dtype)
        ):
            host = place.host_answers = self._pinned(tuple(answers.shape), answers.dtype)
        with self._cuda.stream(self._computing):
            host[: len(answers)].copy_(answers, non_blocking=True)
            place.done.record(self._computing)

    def result(self, slot: int) -> NDArray[np.generic]:
        """Wait for the answers and copy them, as the buffer is used again."""
        place = self._slots[slot]
        assert place.host_answers is not None and place.answers is not None, "copy_out() comes first"  # noqa: PT018 - one truth
        place.done.synchronize()
        found: NDArray[np.generic] = place.host_answers[: len(place.answers)].numpy().copy()
        place.answers = None
        return found

    def settle(self) -> None:
        """Wait for both streams."""
        self._copying.synchronize()
        self._computing.synchronize()

    def record(self, slot: int, rows: int) -> str:
        """Capture the module for batches of so many rows; a graph that does not answer as the module is not kept."""
        try:
            graph = self._captured(rows)
            is_right = self._is_right(graph)
        except BaseException as error:  # noqa: BLE001 - foreign code: a module that cannot be captured runs without
            pass_on_interrupt(error)
            return told(error)
        if not is_right:
            return f"for {rows} rows its graph answers otherwise than the module"
        self._slots[slot].graphs[rows] = graph
        return ""

    def _captured(self, rows: int) -> _LaunchGraph:
        static = torch.zeros((rows, *self._shape), dtype=self._dtype, device=self._device)
        self._cuda.synchronize(self._device)
        with self._cuda.stream(self._computing):
            for _ in range(_WARM_UPS):
                self._module(static)
        self._computing.synchronize()
        launches = self._cuda.CUDAGraph()
        # Other models of this process may allocate meanwhile: only calls of this thread count.
        with self._cuda.graph(launches, pool=self._pool, stream=self._computing, capture_error_mode="thread_local"):
            answers = self._module(static)
        return _LaunchGraph(launches, static, answers)

    def _is_right(self, graph: _LaunchGraph) -> bool:
        """Tell whether it answers other rows than those of the capture as the module does."""
        with self._cuda.stream(self._computing):
            if graph.rows.is_floating_point():
                numbers = torch.linspace(-1, 1, graph.rows.numel(), dtype=self._dtype, device=self._device)
                graph.rows.copy_(numbers.reshape(graph.rows.shape))
            expected = self._module(graph.rows)
            graph.launches.replay()
            alike = torch.allclose(graph.answers, expected, _TOLERANCE, _TOLERANCE, equal_nan=True)
        self._computing.synchronize()
        return alike

    def _rows_of(self, place: _BufferSlot) -> torch.Tensor:
        """Return where the rows of a part lie on the device."""
        graph = place.graphs.get(place.count)
        if graph is not None:
            return graph.rows
        if len(place.rows) < place.count:
            place.rows = torch.empty((place.count, *self._shape), dtype=self._dtype, device=self._device)
        return place.rows[: place.count]

    def _slot(self) -> _BufferSlot:
        none = torch.empty((0, *self._shape), dtype=self._dtype)
        return _BufferSlot(self._cuda.Event(), self._cuda.Event(blocking=True), none, none.to(self._device))

    def _pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=self._is_pinned)
