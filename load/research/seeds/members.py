"""A process under a supervisor: it runs a role, and is started again whenever the role ends."""

from __future__ import annotations

import asyncio
from math import inf
from random import Random
from typing import TYPE_CHECKING

from streams.runtime.role.loop import RoleLoop
from streams.testing.connections import Process
from streams.testing.virtual import VirtualClock, VirtualLoop, later, owned
from workers.errors import HungError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from load.research.seeds.roles import Builder, Runnable
    from schemas.records import Report
    from streams.runtime.clock import Clock
    from streams.testing.broker import FakeBroker

# How soon a supervisor starts a process again.
RESTART_S = 1.0


class Wall:
    """The clock on the wall, which steps; a process looks at it once, when it starts, as `clock.SystemClock` does."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def clock(self) -> Clock:
        """Return the clock of a process that starts now."""
        return _Clock(self.ahead_us)


class _Clock:
    def __init__(self, ahead_us: int) -> None:
        self._ahead_us = ahead_us
        self._virtual = VirtualClock()

    def now_us(self) -> int:
        return self._virtual.now_us() + self._ahead_us


class Member:
    """One place for a process of a role.

    Attributes:
        name: of the place.
        role: that it runs.
        ended: what has ended the role that should not have.
        gauges: of the last report.
    """

    def __init__(
        self,
        name: str,
        role: str,
        broker: FakeBroker,
        seed: int,
        builder: Builder,
        wall: Wall,
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self.ended: list[str] = []
        self.gauges: Mapping[str, float] = {}
        self._runnable: Runnable | None = None
        self._pressure = inf
        self.role = role
        self._broker = broker
        self._seed = seed
        self._builder = builder
        self._wall = wall
        self._note = note
        self._count = 0
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._halted = False
        self._down_s = RESTART_S

    @property
    def is_running(self) -> bool:
        """Whether there is a process, and it does not stand still."""
        return self._task is not None and not self._halted

    def start(self) -> None:
        """Start a process with nothing in its memory."""
        self._count += 1
        name = f"{self.name}#{self._count}"
        random = Random(f"process {name} {self._seed}")  # noqa: S311
        self._process = Process(name, self._broker, random, self._wall.clock(), parks_s=self._builder.parks_s(name))
        self._stop = asyncio.Event()
        running = asyncio.get_running_loop()
        context = owned(self._process)
        self._runnable = self._builder.build(self.role, self._process, self._hook)
        self._task = running.create_task(self._runnable.run(self._stop), context=context)
        self._task.add_done_callback(self._note_end)
        self._note(f"start {name}")

    def look(self) -> None:
        """Note how full its buffers are: of several looks the least counts."""
        if isinstance(self._runnable, RoleLoop):
            self._pressure = min(self._pressure, self._runnable.pressure)
            self.gauges = {**self.gauges, "pressure": self._pressure}

    async def end(self) -> None:
        """Stop the process in order, and do not start it again."""
        task, self._task = self._task, None
        if task is not None:
            self._tell_stop()
            await asyncio.wait([task])

    def kill(self, down_s: float) -> None:
        """Kill the process; another one is started after a while."""
        task, self._task = self._task, None
        if task is None or self._process is None:
            return
        self._note(f"kill {self._process.name}")
        self._process.dead = True
        self.resume()
        task.cancel()
        later(down_s, self.start)

    def kill_at(self, messages: int, down_s: float) -> None:
        """Kill the process when so many of its messages have arrived: it hears of the last one no more."""
        process = self._process
        if self._task is not None and process is not None:
            process.fuse = messages
            process.blown = lambda: self.kill(down_s) if self._process is process else None

    def halt(self, for_s: float) -> None:
        """Pause the process."""
        if self.is_running and self._process is not None:
            self._note(f"halt {self._process.name}")
            self._halted = True
            _loop().halt(self._process)
            process = self._process
            later(for_s, lambda: self.resume() if self._process is process else None)

    def resume(self) -> None:
        """Resume the process."""
        if self._halted and self._process is not None:
            self._note(f"resume {self._process.name}")
            self._halted = False
            _loop().resume(self._process)

    def restart(self, down_s: float) -> None:
        """Stop the process in order; after a pause another one is started."""
        if self.is_running and not self._stop.is_set():
            self._note(f"stop {self.name}")
            self._down_s = down_s
            self._tell_stop()

    def _tell_stop(self) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.ring()

    def _hook(self, report: Report) -> None:
        self.gauges = report.gauges

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Start again what has ended by itself, and remember why."""
        if task is not self._task:
            if not task.cancelled():
                task.exception()
            return
        self._task = None
        fault = task.exception()
        if (stopped := _stopped_by(fault)) is not None:
            raise stopped
        if fault is not None and not _is_planned(fault):
            self.ended.append(f"{self.name} was ended by {_shown(fault)}")
        elif fault is None and not self._stop.is_set():
            self.ended.append(f"{self.name} has ended, nobody told it to")
        self._note(f"ended {self.name} by {fault!r}")
        later(self._down_s, self.start)
        self._down_s = RESTART_S


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "processes stand still in virtual time only"
    return loop


def _is_planned(fault: BaseException) -> bool:
    """Whether a role has ended because its model hangs, as the seed says."""
    if isinstance(fault, BaseExceptionGroup):
        return all(map(_is_planned, fault.exceptions))
    return isinstance(fault, HungError)


def _stopped_by(fault: BaseException | None) -> BaseException | None:
    """Return what has ended a role from outside of the simulation: a test's timeout comes upon whatever runs then."""
    if isinstance(fault, BaseExceptionGroup):
        return next(filter(None, map(_stopped_by, fault.exceptions)), None)
    return None if fault is None or isinstance(fault, Exception) else fault


def _shown(fault: BaseException) -> str:
    """Name the first cause."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return repr(fault)
