"""Executors: away from the event loop, and a hung model does not stop the world."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome
from streams.operators.contract import Predicted
from workers.errors import DeadlyError, HungError, OutputError, PackageError, WorkerError
from workers.executors import frames
from workers.executors.frames import Package
from workers.executors.loop_budget import PROOFS, SURPRISE_US
from workers.executors.pool import PoolExecutor
from workers.executors.process import ProcessExecutor
from workers.executors.thread import ThreadExecutor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input

OK = Outcome.OK
LONG_S = 30.0
ROOT = Path(__file__).parents[2]


def now_us() -> int:
    """Tell the time."""
    return time.monotonic_ns() // 1000


def echo(inputs: Sequence[Input]) -> Predicted:
    """Answer the name of the thread."""
    return Predicted((OK,) * len(inputs), (threading.current_thread().name,) * len(inputs))


def thread(predict: Callable[[Sequence[Input]], Predicted] = echo) -> ThreadExecutor:
    """Make an executor around a function."""
    return ThreadExecutor(lambda: predict, now_us)


async def test_a_thread_of_its_own_predicts() -> None:
    """The event loop's thread does not run a model of which nothing is known."""
    executor = thread()
    await executor.start()
    await executor.start()
    timed = await executor.run(["a", "b"], LONG_S)
    assert timed.predicted.answers == ("predict", "predict")
    assert timed.predict_us >= 0
    await executor.stop()


async def proven(predict: Callable[[Sequence[Input]], Predicted] = echo) -> ThreadExecutor:
    """Make an executor around a function that has been quick so far; its clock stands still."""
    executor = ThreadExecutor(lambda: predict, lambda: 0, cpu_ns=lambda: 0)
    await executor.start()
    for _ in range(PROOFS):
        assert not executor.is_quick(1, more=False)
        await executor.run(["a"], LONG_S)
    return executor


async def test_a_model_that_is_known_to_be_quick_predicts_on_the_event_loops_thread() -> None:
    """Its own thread has nothing to do; where it waits for a device nothing changes."""
    executor = await proven()
    assert executor.is_quick(1, more=False)
    timed = executor.run_quick(["a"], LONG_S)
    assert timed is not None
    assert timed.predicted.answers == (threading.current_thread().name,)
    executor.keep_in_thread()
    assert not executor.is_quick(1, more=False)
    assert (await executor.run(["a"], LONG_S)).predicted.answers == ("predict",)
    await executor.stop()


async def test_what_fails_on_the_event_loops_thread_is_asked_again_in_its_own() -> None:
    """A function that runs an event loop of its own cannot do so there, and is answered all the same."""

    async def answer() -> str:
        return threading.current_thread().name

    def run_loop(inputs: Sequence[Input]) -> Predicted:
        answering = answer()
        try:
            return Predicted((OK,) * len(inputs), (asyncio.run(answering),) * len(inputs))
        except RuntimeError as fault:
            answering.close()
            return Predicted.failed(len(inputs), str(fault))

    executor = await proven(run_loop)
    assert executor.is_quick(1, more=False)
    assert executor.run_quick(["a"], LONG_S) is None
    assert (await executor.run(["a"], LONG_S)).predicted.answers == ("predict",)
    assert not executor.is_quick(1, more=False), "and not for a good while after that"
    await executor.stop()


async def test_a_batch_that_is_quick_no_longer_is_the_last_one_on_the_event_loops_thread() -> None:
    """Once it has kept the loop for 150 ms it is back in its own."""
    times = [0]

    def slow(inputs: Sequence[Input]) -> Predicted:
        times[0] += 0 if len(inputs) == 1 else 3 * SURPRISE_US
        return echo(inputs)

    executor = ThreadExecutor(lambda: slow, lambda: times[0], cpu_ns=lambda: 0)
    await executor.start()
    for _ in range(PROOFS):
        await executor.run(["a"], LONG_S)
    assert executor.run_quick(["a", "b"], LONG_S) is not None
    assert not executor.is_quick(1, more=False)
    await executor.stop()


@pytest.mark.parametrize(("works", "thread"), [(1.0, "MainThread"), (0.0, "predict")])
async def test_a_model_that_keeps_pythons_lock_predicts_on_the_event_loops_thread(works: float, thread: str) -> None:
    """Beside it the loop would get nothing done; one that waits for something else for 6 ms stays in its own thread."""
    clock_us = [0]
    cpu_us = [0.0]

    def predict(inputs: Sequence[Input]) -> Predicted:
        clock_us[0] += 6_000
        cpu_us[0] += 6_000 * works
        return echo(inputs)

    executor = ThreadExecutor(lambda: predict, lambda: clock_us[0], cpu_ns=lambda: round(1_000 * cpu_us[0]))
    await executor.start()
    for _ in range(PROOFS):
        assert not executor.is_quick(1, more=True)
        await executor.run(["a"], LONG_S)
    is_quick = executor.is_quick(1, more=True)
    timed = executor.run_quick(["a"], LONG_S) if is_quick else await executor.run(["a"], LONG_S)
    assert timed is not None
    assert timed.predicted.answers == (thread,)
    await executor.stop()


# Quick two hundred times, then never again.
TIRED = """
import asyncio, logging, threading, time
from schemas.records import Outcome
from workers.executors.thread import ThreadExecutor
from streams.operators.contract import Predicted

served = 0

def tired(inputs):
    global served
    served += 1
    if served > 200:
        print("served 200, the last on", threading.current_thread().name, flush=True)
        while True:
            time.sleep(60)
    return Predicted((Outcome.OK,), ("a",))

async def main():
    executor = ThreadExecutor(lambda: tired, lambda: 0, cpu_ns=lambda: 0)
    await executor.start()
    while True:
        executor.is_quick(1, more=False) and executor.run_quick(["a"], 3.0) or await executor.run(["a"], 3.0)

logging.basicConfig()
asyncio.run(main())
"""


async def test_a_model_that_hangs_on_the_event_loops_thread_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as one that hangs in its own, with the same words and the same exit code."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", TIRED, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(LONG_S):
            output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert output.decode() == "served 200, the last on MainThread\n"
    assert "the model did not answer 1 rows within 3.0 s and a thread cannot be killed" in complaint.decode()
    assert process.returncode == 1


async def test_loading_happens_in_the_same_thread_and_its_refusal_is_told() -> None:
    """Limits of OpenMP belong to the thread that sets them; a bad package ends the start."""
    names: list[str] = []

    def load() -> Callable[[Sequence[Input]], Predicted]:
        names.append(threading.current_thread().name)
        raise PackageError("no such package")

    executor = ThreadExecutor(load, now_us)
    with pytest.raises(PackageError, match="no such package"):
        await executor.start()
    assert names == ["predict"]
    await executor.stop()


async def test_a_model_that_hangs_while_it_is_loaded_is_reported() -> None:
    """The worker ends instead of waiting for ever with its partitions unread."""
    release = threading.Event()

    def load() -> Callable[[Sequence[Input]], Predicted]:
        release.wait()
        return echo

    executor = ThreadExecutor(load, now_us, load_s=0.02)
    with pytest.raises(HungError, match=r"not loaded within 0\.02 s"):
        await executor.start()
    assert not executor.ready
    release.set()
    await executor.stop()


# Hangs the first time, and is loaded the second.
SLOW = "import pathlib, sys; p = pathlib.Path(sys.argv[1])\n"
SLOW += "if not p.exists(): p.touch(); sys.stdin.read()\n"
SLOW += r"sys.stdout.buffer.write(b'\0\0\0\25' + bytes(9) + b'[null, 0, 0]'); sys.stdout.flush(); sys.stdin.read()"


async def test_a_child_that_hangs_while_it_loads_is_killed_and_can_be_started_again(tmp_path: Path) -> None:
    """Each attempt is bounded and says so, so that the next one is its owner's choice; here it loads."""
    executor = ProcessExecutor(
        Package(str(tmp_path)), now_us, load_s=3.0
    )  # the second attempt takes less, on a busy machine, too
    executor._arguments = ("-S", "-c", SLOW, str(tmp_path / "tried"))
    with pytest.raises(DeadlyError, match="not loaded within 3 s: its process was killed"):
        await executor.start()
    assert not executor.ready
    await executor.start()
    assert executor.ready
    await executor.stop()
    assert not executor.ready


async def test_a_hung_thread_is_reported() -> None:
    """It cannot be killed, so the worker must end: the error says so."""
    release = threading.Event()

    def hang(inputs: Sequence[Input]) -> Predicted:
        release.wait()
        return echo(inputs)

    executor = thread(hang)
    await executor.start()
    with pytest.raises(HungError, match="process of its own"):
        await executor.run(["a"], 0.02)
    release.set()
    await executor.stop()


async def test_the_event_loop_runs_on_while_the_model_predicts() -> None:
    """Timers fire and records are read meanwhile."""
    release = threading.Event()

    def wait(inputs: Sequence[Input]) -> Predicted:
        release.wait()
        return echo(inputs)

    executor = thread(wait)
    await executor.start()
    running = asyncio.create_task(executor.run(["a"], LONG_S))
    await asyncio.sleep(0)
    assert not running.done()
    release.set()
    assert (await running).predicted.outcomes == (OK,)
    await executor.stop()


@pytest.fixture
def moody(tmp_path: Path) -> Path:
    """Package the model that hangs and dies when told to."""
    package_function("tests.toys:moody", tmp_path / "moody", "moody", "1", ["calm"])
    return tmp_path / "moody"


async def test_a_child_process_predicts_hangs_dies_and_is_replaced(
    moody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung or dead child costs its batch, not the worker; what the model prints disturbs nothing."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executor = ProcessExecutor(Package(str(moody)), now_us)
    await executor.start()
    assert (await executor.run(["a", b"wrong kind"], LONG_S)).predicted == Predicted(
        (OK, Outcome.INVALID),
        ("a", ""),
        reasons={1: "kind"},
        messages={1: "model moody takes a text, got bytes"},
    )
    hung = (await executor.run(["hang"], 0.05)).predicted
    await executor.start()
    died = (await executor.run(["die", "x"], LONG_S)).predicted
    await executor.start()
    alive = (await executor.run(["b"], LONG_S)).predicted
    await executor.stop()
    assert (hung.outcomes, died.outcomes) == ((Outcome.FAILED,), (Outcome.FAILED,) * 2)
    assert hung.fault is not None
    assert "did not answer" in hung.fault
    assert died.fault == "the model's process died"
    assert alive.answers == ("b",)


async def test_a_pool_divides_a_batch_among_its_children_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes have parts of equal size; a batch of two leaves one of them in peace."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    package_function("tests.toys:whereabouts", tmp_path / "w", "w", "1", ["x"])
    pool = PoolExecutor([ProcessExecutor(Package(str(tmp_path / "w")), now_us) for _ in range(3)], now_us)
    await pool.start()
    answers = [str(answer).split() for answer in (await pool.run(list("abcdefg"), LONG_S)).predicted.answers]
    few = (await pool.run(["a", "b"], LONG_S)).predicted.answers
    await pool.stop()
    assert "".join(word for word, _ in answers) == "abcdefg"
    pids = [pid for _, pid in answers]
    assert [len(list(same)) for _, same in groupby(pids)] == [2, 2, 3]
    assert len(set(pids)) == 3
    assert len({str(answer).split()[1] for answer in few}) == 2
    assert not pool.ready


async def test_a_child_of_a_pool_that_dies_costs_its_part_of_the_batch(
    moody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other parts are answered, and the next batch waits for a new child."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pool = PoolExecutor([ProcessExecutor(Package(str(moody)), now_us) for _ in range(2)], now_us)
    await pool.start()
    hurt = (await pool.run(["a", "die", "b", "c"], LONG_S)).predicted
    assert not pool.ready
    await pool.start()
    well = (await pool.run(["a", "b", "c"], LONG_S)).predicted
    await pool.stop()
    assert hurt.outcomes == (Outcome.FAILED, Outcome.FAILED, OK, OK)
    assert tuple(hurt.answers[2:]) == ("b", "c")
    assert hurt.fault == "the model's process died"
    assert well == Predicted((OK,) * 3, ("a", "b", "c"))


async def test_a_pool_that_cannot_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each of its children."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pool = PoolExecutor([ProcessExecutor(Package(str(tmp_path)), now_us) for _ in range(2)], now_us)
    with pytest.raises(PackageError, match="not a model package"):
        await pool.start()
    await pool.stop()


async def test_a_child_gives_its_model_the_allowed_batches_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows are four to the model, five are eight; as many answers come back as were asked for."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    package_function("tests.toys:crowd", tmp_path / "crowd", "crowd", "1", ["x"])
    executor = ProcessExecutor(Package(str(tmp_path / "crowd"), sizes=(4, 8)), now_us)
    await executor.start()
    answers = [(await executor.run(["x"] * rows, LONG_S)).predicted.answers for rows in (3, 5)]
    await executor.stop()
    assert [np.asarray(each).tolist() for each in answers] == [[4] * 3, [8] * 5]


async def test_a_child_that_takes_too_much_memory_fails_that_batch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may take is bounded by the system; other batches are answered before and after by the same process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    package_function("tests.toys:hungry", tmp_path / "hungry", "hungry", "1", ["0"])
    executor = ProcessExecutor(Package(str(tmp_path / "hungry")), now_us, memory_bytes=256 << 20)
    await executor.start()
    outcomes = [(await executor.run([mib], LONG_S)).predicted for mib in ("16", "1024", "17")]
    assert executor.ready
    await executor.stop()
    assert [predicted.outcomes for predicted in outcomes] == [(OK,), (Outcome.FAILED,), (OK,)]
    assert "MemoryError" in str(outcomes[1].fault)


async def test_a_model_that_does_not_fit_into_its_memory_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends before it says that it is ready, or says that it does not fit."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    package_function("tests.toys:hungry", tmp_path / "hungry", "hungry", "1", ["0"])
    executor = ProcessExecutor(Package(str(tmp_path / "hungry")), now_us, memory_bytes=8 << 20)
    with pytest.raises(WorkerError, match=r"ended while it was loading|does not fit"):
        await executor.start()
    assert not executor.ready


async def test_a_child_that_cannot_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal crosses the process boundary."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executor = ProcessExecutor(Package(str(tmp_path)), now_us)
    with pytest.raises(PackageError, match="not a model package"):
        await executor.start()
    await executor.stop()


@pytest.mark.parametrize(
    "predicted",
    [
        Predicted((OK, Outcome.FAILED), np.array([1, 0]), fault="ValueError: no"),
        Predicted((OK,), np.array([0.5]), np.array([[0.25, 0.75]], dtype=np.float32)),
        Predicted((OK, Outcome.INVALID), ("ü", ""), reasons={1: "shape"}, messages={1: "ü[5]"}),
    ],
)
def test_results_cross_the_process_boundary_unchanged(predicted: Predicted) -> None:
    """Labels, numbers, scores, outcomes and complaints."""
    back = frames.unpack(frames.pack(predicted), len(predicted.outcomes))
    assert (back.outcomes, back.reasons, back.fault) == (predicted.outcomes, predicted.reasons, predicted.fault)
    assert back.messages == predicted.messages
    assert np.array_equal(back.answers, predicted.answers)
    assert (back.scores is None) == (predicted.scores is None)
    assert back.scores is None or np.array_equal(back.scores, np.asarray(predicted.scores))


@pytest.mark.parametrize("frame", [None, b"", b"garbage", frames.pack(Predicted((OK,), np.array([1])))])
def test_what_is_no_result_of_this_batch_is_refused(frame: bytes | None) -> None:
    """A model's process is not trusted to send what it should."""
    with pytest.raises(OutputError):
        frames.unpack(frame, 2)
