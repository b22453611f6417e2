"""A process whose clock is shifted, and what the rows of clocks tell of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from load.matrix import clocks
from load.matrix.kinds import EVERY
from load.matrix.mixes import CLOCKED, PLAIN, WINDOW_S, mix_of
from load.matrix.traffic import LATE, NEVER, SLOW, Promised, Traffic
from schemas.records import Prediction, Report, Status

if TYPE_CHECKING:
    from pathlib import Path

    from load.matrix.broken import Place

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
# What a role does with times: it reads them in Python and in librdkafka's way, and waits.
READ = """
import datetime, threading, time, confluent_kafka
began = time.monotonic()
threading.Event().wait(0.2)
confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "none", "log_level": 0}).poll(0.2)
waited = time.monotonic() - began
print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), waited)
"""


@needs_compiler
@pytest.mark.parametrize("seconds", [60, -60])
def test_a_shifted_process_has_another_time_and_waits_as_long_as_ever(seconds: int, tmp_path: Path) -> None:
    """In Python and in librdkafka; by the monotonic clock nothing is shifted."""
    library = clocks.compiled(tmp_path, str(COMPILER))
    shifted = {**os.environ, "LD_PRELOAD": str(library), "CLOCK_SHIFT_S": str(seconds)}
    told = subprocess.run([sys.executable, "-c", READ], env=shifted, capture_output=True, check=True, text=True)
    *times, waited = map(float, told.stdout.split())
    assert [each - time.time() for each in times] == pytest.approx([seconds] * 3, abs=20)
    assert 0.2 <= waited < 20


class Asked:
    """Traffic that has sent and told all."""

    sent = 0
    delays = dict.fromkeys(SLOW, 0.0)

    def answered(self, *_asked: object) -> list[int]:
        """Return three queries whose feedback was slow."""
        return [40, 41, 90]

    def share_complete(self, *_asked: object) -> float:
        """Return half."""
        return 0.5


class Processes:
    """One process; what it is started with is noted."""

    def __init__(self) -> None:
        self.pids, self.restarts = {"joiner": os.getpid()}, Counter[str]()
        self.begun: list[dict[str, str]] = []

    async def stop(self, name: str, _grace_s: float | None = None) -> None:
        """End it: nothing."""

    async def start(self, name: str, environment: dict[str, str] | None = None) -> None:
        """Note how."""
        self.begun.append(environment or {})


def place_of(processes: Processes, folder: Path) -> Place:
    """Return a place with nothing but a joiner."""
    values: dict[str, Any] = {"system": processes, "traffic": Asked(), "trace": folder / "trace"}
    return cast("Place", SimpleNamespace(**values, process=lambda role: role))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Return a joiner, where nobody waits and one feedback was refused."""
    monkeypatch.setattr(clocks, "_ASKED_S", 0.0)
    monkeypatch.setattr(clocks, "_REFUSED_S", 0.0)
    monkeypatch.setattr(clocks, "refused", lambda _place: {"q41", "q7"})
    report = Report("joiner@1", "joiner", int((time.time() + 60) * 1e6), {}, {})
    monkeypatch.setattr(clocks, "last_report", lambda _place, _pid: report)
    return Processes()


@needs_compiler
async def test_a_row_of_clocks_tells_what_it_cost_and_gives_the_clock_back(
    processes: Processes, tmp_path: Path
) -> None:
    """The last start is without the shift."""
    seen = await clocks.CLOCK_ROWS[4].blow(place_of(processes, tmp_path))
    assert seen is not None
    assert [each.get("CLOCK_SHIFT_S") for each in processes.begun] == ["60", None]
    assert [*seen.figures.values()] == [50.0, 3, 1]
    assert seen.faults == ()


@needs_compiler
async def test_a_row_of_clocks_that_shows_nothing_says_so(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is as its reports say, or the role was never ready."""
    behind = await clocks.CLOCK_ROWS[5].blow(place_of(processes, tmp_path))
    assert behind is not None
    (fault,) = behind.faults
    assert fault.endswith("s, not by -60")
    monkeypatch.setattr(clocks, "_READY_S", 0.01)
    monkeypatch.setattr(clocks, "_LOOK_S", 0.001)
    monkeypatch.setattr(clocks, "last_report", lambda _place, _pid: None)
    silent = await clocks.CLOCK_ROWS[4].blow(place_of(processes, tmp_path))
    assert silent is not None
    assert "it was not ready meanwhile" in silent.faults


async def test_without_a_compiler_a_row_of_clocks_says_so(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a fault, as nothing was tried, and touches nothing."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    seen = await clocks.CLOCK_ROWS[0].blow(place_of(processes, tmp_path))
    assert seen is not None
    assert "C compiler" in seen.faults[0]
    assert (processes.begun, seen.figures) == ([], {})


def test_each_role_s_clock_goes_ahead_and_behind() -> None:
    """Of four roles."""
    assert [row.name for row in clocks.CLOCK_ROWS] == [
        f"{role}'s clock {way} s" for role in ("selection", "worker", "joiner", "learner") for way in ("+60", "-60")
    ]


def test_where_clocks_are_shifted_some_feedback_comes_after_half_a_window_and_may_be_late() -> None:
    """It comes before what is late for sure, whatever was answered first; in other parts nothing waits so long."""
    assert mix_of("clocks", is_short=True) is CLOCKED
    assert {CLOCKED.delays[turn] for turn in SLOW} == {WINDOW_S / 2}
    assert not {*SLOW} & ({*LATE, *NEVER} | PLAIN.delays.keys())
    delays, promised = {LATE[0]: 0.1, SLOW[0]: -0.1}, Promised(2.0, 4, 30.0)
    traffic = Traffic("127.0.0.1:1", "none", CLOCKED.kinds, 60.0, delays, promised)
    traffic._start_us = time.time_ns() // 1000
    for number in (LATE[0], SLOW[0], SLOW[0] + EVERY):
        answer = Prediction(f"q{number}", "sums", None, None, Status.COMPLETE, None, 1, 1.0, (), 0, 0, 0, 0)
        traffic._answered(number, answer, 0)
    traffic._tell_late()
    assert traffic.acknowledged.late == {f"q{SLOW[0]}", f"q{SLOW[0] + EVERY}"}
    assert traffic.answered(0, 2 * EVERY, SLOW) == [SLOW[0], SLOW[0] + EVERY]
