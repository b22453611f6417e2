"""Where a process's CPU time goes, by its own samples."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from streams.runtime.process.cpu_profiler import LOOP, THREADS, Samples, sampling

# Burns CPU in a callback, in a thread and in the event loop, until SIGTERM; then says what it has used.
BUSY = """
import asyncio, hashlib, os, signal, sys, time
from pathlib import Path
import uvloop
from streams.runtime.process.cpu_profiler import sampling

def burn(until_s):
    while time.process_time() < until_s:
        hashlib.blake2b(bytes(10_000)).digest()

def turn(loop, until_s):
    if time.process_time() < until_s:
        loop.call_later(0, turn, loop, until_s)
    else:
        os.kill(os.getpid(), signal.SIGTERM)

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with sampling(Path(sys.argv[1])):
        started_s = time.process_time()
        burn(started_s + 0.2)
        await asyncio.to_thread(burn, started_s + 0.4)
        turn(asyncio.get_running_loop(), started_s + 0.6)
        await stop.wait()
        used_s = time.process_time() - started_s
    print(os.getpid(), used_s)

uvloop.run(main())
"""


def weights(content: dict[str, list[list[str]] | list[list[int]]]) -> Counter[str]:
    """Return CPU time (ns) by innermost function."""
    found: Counter[str] = Counter()
    for _, number, used_ns in content["samples"]:
        found[content["stacks"][number][0]] += used_ns
    return found


def test_what_a_process_used_is_told_by_function_and_a_signal_still_ends_it(tmp_path: Path) -> None:
    """Main thread, other threads and the event loop on uvloop; the weights add up; SIGTERM is heard."""
    done = subprocess.run(
        [sys.executable, "-c", BUSY, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    pid, used_s = done.stdout.split()
    found = weights(json.loads((tmp_path / f"{pid}.json").read_text()))
    assert 0.95 < sum(found.values()) / 1e9 / float(used_s) < 1.05
    assert found["__main__:burn"] / 1e9 > 0.15
    assert found[THREADS] / 1e9 > 0.15
    assert found[LOOP] / 1e9 > 0.02


def test_a_sample_weighs_what_was_used_since_the_last_one() -> None:
    """Of the main thread and of the others, each; stacks are known again, and their order is innermost first."""
    samples = Samples(main_ns=1_000_000, all_ns=5_000_000)

    def inner() -> None:
        samples.add(10, sys._getframe(), main_ns=3_000_000, all_ns=7_000_000)

    def outer() -> None:
        inner()

    outer()
    outer()
    samples.add(20, sys._getframe(), main_ns=3_500_000, all_ns=9_000_000)
    content = samples.content()
    stack = content["stacks"][0]
    assert [frame.rpartition(".")[2] for frame in stack[:2]] == ["inner", "outer"]
    assert [(at_us, used_ns) for at_us, _, used_ns in content["samples"]] == [
        (10, 2_000_000),
        (10, 0),
        (20, 500_000),
        (20, 1_500_000),
    ]
    assert weights(content)[THREADS] == 1_500_000


def test_clocks_that_are_read_one_after_the_other_make_no_threads() -> None:
    """A microsecond between two readings is nobody's work."""
    samples = Samples(0, 0)
    for tick in range(1, 100):
        samples.add(tick, sys._getframe(), tick * 1_000_000, tick * 1_000_000 + tick % 2 * 1_500)
    assert THREADS not in weights(samples.content())


def test_nothing_is_sampled_without_a_folder() -> None:
    """Who is not asked keeps every signal as it was."""
    before = signal.getsignal(signal.SIGPROF)
    with sampling(None):
        assert signal.getsignal(signal.SIGPROF) is before
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
