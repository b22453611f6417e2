"""Whatever a model raises or returns fails its row, or its loading, and nothing beside it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from policies.foreign import MOST, handles_interrupts, pass_on_interrupt, told
from schemas.records import Model, Outcome, Tensor
from streams.operators.contract import Load, Loaded, Predict, Predicted, Ran
from streams.runtime.clock import SystemClock
from streams.runtime.ports import ExecutorEvents
from tests.raising import RAISED, RETURNED, Panic, fail, raises, returns
from workers.errors import HungError, PackageError, refusing
from workers.executors.frames import Package
from workers.executors.models import ModelExecutors
from workers.executors.process import ProcessExecutor
from workers.executors.thread import ThreadExecutor
from workers.inputs.rows import predict_rows
from workers.manifest import Manifest, Signature
from workers.packages.packaging import package_function
from workers.runtimes.contract import Outputs
from workers.runtimes.function import FunctionRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from schemas.records import Input
    from workers.runtimes.contract import Rows

OK, FAILED = Outcome.OK, Outcome.FAILED
LABELS = Manifest("m", "1", "function", Signature("tensor", "float32", (2,)), "label")
MODEL = Model("m", "1", "function", "nowhere", "", "label", "float32", (2,))
EACH = pytest.mark.parametrize("number", range(1, len(RAISED) + 1))


def row(first: float) -> Tensor:
    """Make an input row."""
    return Tensor.of(np.array([first, 0], np.float32))


class Raw:
    """A runtime of a stranger's own: what its function returns is not looked at."""

    def __init__(self, function: Callable[[Rows], Any]) -> None:
        self._function = function

    def predict_batch(self, rows: Rows) -> Outputs:
        """Return what the function returns; of nothing odd, the columns."""
        found = self._function(rows)
        return Outputs(found) if type(found) is np.ndarray else found


@EACH
def test_whatever_a_model_raises_fails_its_row_alone(number: int) -> None:
    """The rows beside it are answered; the message is one short line."""
    predicted = predict_rows(FunctionRuntime(LABELS, raises), LABELS, [row(1), row(-number), row(2)])
    assert predicted.outcomes == (OK, FAILED, OK)
    assert predicted.fault is not None
    assert len(predicted.fault) <= MOST
    assert "\n" not in predicted.fault


@pytest.mark.parametrize("kind", RETURNED)
@pytest.mark.parametrize("runtime", [partial(FunctionRuntime, LABELS), Raw])
def test_whatever_a_model_returns_fails_its_row_alone(runtime: Callable[[Any], Any], kind: str) -> None:
    """Also where a runtime of its own looks at nothing."""
    predicted = predict_rows(runtime(returns(kind)), LABELS, [row(1), row(666), row(2)])
    assert predicted.outcomes == (OK, FAILED, OK)
    assert np.asarray(predicted.answers)[[0, 2]].tolist() == [1, 1]


def test_columns_are_copied_and_plain() -> None:
    """What a model writes into its buffer for the next batch does not change the answers to this one."""
    buffer = np.ones((1, 2), ">f4")
    runtime = Raw(lambda rows: Outputs(np.zeros(len(rows), ">i8"), buffer))
    predicted = predict_rows(runtime, LABELS, [row(1)])
    buffer[:] = 7
    assert predicted.scores is not None
    assert predicted.scores.tolist() == [[1, 1]]
    assert predicted.scores.dtype.isnative


class Heard:
    """What executors tell."""

    def __init__(self) -> None:
        self.ran: asyncio.Queue[Ran] = asyncio.Queue()
        self.loaded: asyncio.Queue[Loaded] = asyncio.Queue()
        self.events = ExecutorEvents(lambda _, ran: self.ran.put_nowait(ran), self.loaded.put_nowait)


def _ones(rows: Sequence[Input]) -> Predicted:
    return Predicted((OK,) * len(rows), np.ones(len(rows), np.int64))


class Quick(ThreadExecutor):
    """Has every batch run on the event loop."""

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Return True."""
        return True


@EACH
@pytest.mark.parametrize("executor", [Quick, ThreadExecutor])
async def test_a_lane_hears_of_its_batch_whatever_is_raised_around_the_model(
    executor: type[ThreadExecutor], number: int
) -> None:
    """On the event loop's own thread and in another one, nothing but the batch fails, and the next one is answered."""

    def predict(rows: Sequence[Input]) -> Predicted:
        if len(rows) == 2:
            fail(number)
        return _ones(rows)

    heard = Heard()
    executors = ModelExecutors(lambda _, chose: executor(lambda: predict, SystemClock().now_us))
    with _handled():
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            executors.connect(heard.events, tasks)
            executors.load(Load(MODEL, 0, is_vital=True))
            assert (await heard.loaded.get()).fault is None
            for rows, outcome in ((2, FAILED), (1, OK)):
                executors.predict(Predict(rows, "m", "1", [row(1)] * rows, 5_000_000, is_vital=True))
                executors.go_on()
                assert (await heard.ran.get()).results.outcomes == (outcome,) * rows
            await executors.stop()


@EACH
async def test_whatever_is_raised_while_a_model_is_loaded_refuses_it(number: int) -> None:
    """Neither the loop nor the task that waits ends, nor does anybody wait for ever."""

    def load() -> Callable[[Sequence[Input]], Predicted]:
        fail(number)
        return _ones

    heard = Heard()
    executors = ModelExecutors(lambda _, chose: ThreadExecutor(load, SystemClock().now_us))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        executors.connect(heard.events, tasks)
        executors.load(Load(MODEL, 0, is_vital=True))
        assert (await heard.loaded.get()).fault
        await executors.loaded()
        await executors.stop()


async def test_a_child_goes_on_whatever_its_model_raises(tmp_path: Path) -> None:
    """Each culprit fails alone; it is the same process before and after, which a Ctrl-C does not end either."""
    package_function("tests.raising:raises", tmp_path / "p", "m", "1", np.ones((2, 2), np.float32))
    child = ProcessExecutor(Package(str(tmp_path / "p")), SystemClock().now_us)
    try:
        await child.start()
        process = child._child
        for number in range(1, len(RAISED) + 1):
            timed = await child.run([row(1), row(-number), row(2)], 30)
            assert timed.predicted.outcomes == (OK, FAILED, OK)
        assert process is not None
        process.process.send_signal(signal.SIGINT)
        assert (await child.run([row(1)], 30)).predicted.outcomes == (OK,)
        assert child._child is process
    finally:
        await child.stop()


@EACH
def test_a_refusal_passes_what_is_ours_and_turns_all_else(number: int) -> None:
    """So packaging, loading, converting and importing refuse whatever foreign code raises."""
    with pytest.raises(PackageError, match="it is odd"), refusing("it is odd"):
        fail(number)


def test_an_error_that_cannot_say_what_it_is_is_named() -> None:
    """Whatever its text and its class raise."""
    texts = [told(make()) for make in RAISED]
    assert all(texts)
    assert "MuteError, which does not say why" in texts
    assert "Nameless, which does not say why" in texts


def test_a_ctrl_c_of_the_user_is_passed_on() -> None:
    """Where no role handles it, and it was not a statement of the stranger's that raised it."""
    handles_interrupts(does=False)  # a role that was run in this process may have said so, or taken the signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), refusing("it is odd"):
        signal.raise_signal(signal.SIGINT)
    pass_on_interrupt(Panic())
    with _handled(), pytest.raises(PackageError), refusing("it is odd"):
        signal.default_int_handler(signal.SIGINT, None)


async def test_the_end_of_a_task_passes_a_refusal_around_its_wait() -> None:
    """A role that stops is no fault of its model."""
    heard = Heard()
    executors = ModelExecutors(lambda _, chose: ThreadExecutor(lambda: _never, SystemClock().now_us))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        executors.connect(heard.events, tasks)
        executors.load(Load(MODEL, 0, is_vital=True))
        await heard.loaded.get()
        executors.predict(Predict(1, "m", "1", [row(1)], 1, is_vital=True))
        await executors.stop()
    assert heard.ran.empty()


def _never(rows: Sequence[Input]) -> Predicted:
    raise HungError(f"asked {len(rows)} rows of a model that was let go of")


@contextmanager
def _handled() -> Iterator[None]:
    """Handle a Ctrl-C as in a process of roles."""
    handles_interrupts()
    try:
        yield
    finally:
        handles_interrupts(does=False)
