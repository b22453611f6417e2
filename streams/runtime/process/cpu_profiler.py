"""Where a process's CPU time goes, by sampling: what runs whenever a few milliseconds of it have been used.

    ITIMER_PROF ──▶ SIGPROF ──▶ stack of the main thread, and what it and the others have used since ──▶ JSON at the end

The kernel looks at the timer once a tick, so a second of CPU gives no more samples than it has ticks (250 on most Linux
machines). A sample weighs the CPU time since the last one: whoever's time set off the signal, the weights add up to
what the process has used.

Python handles signals between bytecodes. The time of a C function belongs to the line that called it; what the event
loop itself spends (sockets, polling, timers: C from end to end) shows at the entry of its next callback, and is told
apart by that. Other threads are one sum: their stacks can be seen only where they let go of the interpreter lock, which
is not where they spend their time.
"""

from __future__ import annotations

import asyncio
import dis
import json
import os
import signal
import time
from array import array
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType, FrameType

INTERVAL_S: Final = 0.001  # of CPU time; the kernel's tick makes it longer
LOOP: Final = "(loop)"  # the event loop itself
THREADS: Final = "(threads)"  # every thread but the main one
_NOISE_NS: Final = 10_000  # two clocks are not read at the same time
_ROOT: Final = asyncio.Runner.run.__code__  # starts the loop: below it all stacks are the same


class Samples:
    """Stacks and their weights, in order of time."""

    def __init__(self, main_ns: int, all_ns: int) -> None:
        """Start with nothing.

        Args:
            main_ns: CPU time that the main thread has used so far.
            all_ns: that all threads have.
        """
        self._main_ns, self._others_ns = main_ns, all_ns - main_ns
        self._flat = array("q")
        self._numbers: dict[tuple[int, ...], int] = {}
        self._stacks: list[tuple[str, ...]] = []
        self._codes: list[list[CodeType]] = []  # kept, so that their ids stay their own

    def add(self, now_us: int, frame: FrameType | None, main_ns: int, all_ns: int) -> None:
        """Note that the main thread is in `frame`, and what has been used by now."""
        self._flat.extend((now_us, self._number(frame), main_ns - self._main_ns))
        self._main_ns = main_ns
        others_ns = all_ns - main_ns - self._others_ns
        if others_ns > _NOISE_NS:
            self._flat.extend((now_us, self._known((0,), (THREADS,)), others_ns))
            self._others_ns += others_ns

    def content(self) -> dict[str, list[tuple[str, ...]] | list[tuple[int, int, int]]]:
        """Return what was seen.

        Returns:
            stacks: of `module:function`, innermost first.
            samples: time (us since the epoch), number of the stack, CPU time since the last one (ns).
        """
        flat = self._flat
        return {"stacks": self._stacks, "samples": list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))}

    def _number(self, frame: FrameType | None) -> int:
        frames = list(_until_loop(frame))
        if not frames or (len(frames) == 1 and frames[0].f_lasti <= _entry(frames[0].f_code)):
            return self._known((), (LOOP,))
        codes = [each.f_code for each in frames]
        key = tuple(map(id, codes))
        number = self._numbers.get(key)
        if number is None:
            self._codes.append(codes)
            return self._known(key, tuple(map(_name, frames)))
        return number

    def _known(self, key: tuple[int, ...], stack: tuple[str, ...]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._stacks)
            self._stacks.append(stack)
        return number


@contextmanager
def sampling(folder: Path | None, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Sample this process for the time of a block, in its main thread; writes `<process id>.json` at the end.

    Args:
        folder: created if need be; None samples nothing.
        interval_s: CPU time between two samples, at least.
    """
    if folder is None:
        yield
        return
    samples = Samples(time.thread_time_ns(), time.process_time_ns())

    def take(_number: int, frame: FrameType | None) -> None:
        samples.add(time.time_ns() // 1_000, frame, time.thread_time_ns(), time.process_time_ns())

    signal.signal(signal.SIGPROF, take)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, interval_s, interval_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # one may still be on its way; by default it kills
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.getpid()}.json").write_text(json.dumps(samples.content()))


def _until_loop(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames above the one that started the event loop, innermost first."""
    while frame is not None and frame.f_code is not _ROOT:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{frame.f_globals.get('__name__', code.co_filename)}:{code.co_qualname}"


@cache
def _entry(code: CodeType) -> int:
    """Return where a function begins: signals are handled there, before anything of it has run."""
    return next((step.offset for step in dis.get_instructions(code) if step.opname == "RESUME"), 0)
