"""The honest client, which no attack may disturb: a steady rate of queries with feedback, from a process of its own.

Attacks take time in the harness, too; the process of its own keeps that out of the measurement. Latency counts from the
time when each query was meant to be sent, second by second.
"""

from __future__ import annotations

import multiprocessing
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from load.harness.openloop import OpenLoop
from load.harness.recorder import Recorder
from load.harness.wire import Wire
from load.harness.workload import Rows
from schemas import topics
from schemas.codec import Codec
from schemas.records import Tensor
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

RATE = 100.0
SLO_MS = 500.0
ROWS = 16
_DRAIN_S = 15.0
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Seconds:
    """The outcomes of the queries of some seconds: sent, answered, in time, wrong."""

    sent: int
    answered: int
    in_time: int
    wrong: int

    @property
    def share(self) -> float:
        """In time of those that were sent; none where none was, as then nothing was measured."""
        return self.in_time / self.sent if self.sent else 0.0


class Honest:
    """The running client.

    Attributes:
        start_us: when its first second began.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.start_us: int = pipe.recv()

    def between(self, from_us: int, until_us: int) -> Seconds:
        """Return what has become of all whole seconds between two times so far."""
        first, last = -(-(from_us - self.start_us) // 1_000_000), (until_us - self.start_us) // 1_000_000
        rows = [row for row in self._windows() if first <= row["start_us"] // 1_000_000 < last]
        return Seconds(*(sum(row[name] for row in rows) for name in ("sent", "answered", "in_time", "wrong")))

    def _windows(self) -> Sequence[Mapping[str, int]]:
        self._pipe.send("windows")
        found: Sequence[Mapping[str, int]] = self._pipe.recv()
        return found

    def stop(self) -> None:
        """Send no more, and wait for the last answers."""
        self._pipe.send("stop")
        self._pipe.recv()


@contextmanager
def honest(bootstrap: str, prefix: str, application: str) -> Iterator[Honest]:
    """Ask an application for the time of a block."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(theirs, bootstrap, prefix, application), daemon=True)
    process.start()
    try:
        yield Honest(ours)
    finally:
        ours.close()
        process.terminate()
        process.join()


def _serve(pipe: Connection, bootstrap: str, prefix: str, application: str) -> None:
    """Send and judge in a thread; say what was counted when asked."""
    now_us = SystemClock().now_us
    with closing(Wire(bootstrap, prefix)) as wire:
        wire.follow((topics.PREDICTIONS,))
        recorder = Recorder(now_us(), int(SLO_MS * 1e3))
        loop = OpenLoop(wire, Codec(), _workload(application), recorder, now_us)
        pipe.send(recorder.start_us)
        arrivals = (int(number * 1e6 / RATE) for number in count())
        sender = threading.Thread(target=loop.run, args=(arrivals, _DRAIN_S))
        sender.start()
        while pipe.recv() != "stop":
            pipe.send(recorder.counts())
        loop.stop()
        sender.join()
        pipe.send("stopped")
        while pipe.recv() != "stop":
            pipe.send(recorder.counts())


def _workload(application: str) -> Rows:
    """Return rows whose number is their label: `load.models.functions:right` answers it, `wrong` the next."""
    inputs = [Tensor.of(np.full(1, number, np.float32)) for number in range(ROWS)]
    return Rows(application, inputs, labels=range(ROWS))
