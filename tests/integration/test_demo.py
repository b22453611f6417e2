"""The demo as a process: it runs to its end, and it ends in good order when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

from tests import demo_report

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
LINE_S = 200.0
END_S = 90.0
COMMAND = (sys.executable, "-m", "deploy.cli", "demo", "--broker", "embedded", "--rate", "40")
TWICE_INTERRUPTED = 130
SECOND = r" *(\d+) s  digits"  # which ones are shown is a busy machine's


class Demo:
    """A demo on the embedded broker, in its own folder, read line by line.

    Args:
        folder: for its report and everything temporary.
        seconds: of load.
        argv: what is started.
        terminal: give it a terminal of its own, as a person at a keyboard has.
    """

    def __init__(self, folder: Path, seconds: float, argv: tuple[str, ...] = COMMAND, terminal: bool = False) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.said: list[str] = []
        self.children: list[psutil.Process] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._own, theirs = pty.openpty() if terminal else (None, subprocess.PIPE)
        # `setsid --ctty` makes the terminal theirs and the program its foreground job.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv] if terminal else argv,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DEMO_SECONDS": str(seconds), "TMPDIR": str(self.temporary)},
            cwd=folder,
        )
        if terminal:
            os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()  # what it started dies with it
        self.process.wait()
        self._reader.join()

    def until(self, words: str) -> None:
        """Read until a line with these words, a regular expression; remember the processes that there are then."""
        while True:
            line = self._lines.get(timeout=LINE_S)
            assert line is not None, "\n".join(self.said)
            if re.search(words, line):
                break
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def press(self, keys: bytes) -> None:
        """Type on its terminal."""
        assert self._own is not None
        os.write(self._own, keys)

    def end(self) -> int:
        """Wait for its end; returns the exit code. What it said stands in the output of a test that fails."""
        code = self.process.wait(END_S)
        self._reader.join(END_S)
        sys.stdout.write("\n".join(self.said))
        return code

    def left(self) -> list[psutil.Process]:
        """Return the processes that were seen and still live."""
        _, alive = psutil.wait_procs(self.children, timeout=END_S)
        return alive

    def report(self) -> dict[str, Any]:
        """Read the report."""
        (path,) = (self.folder / "reports").glob("*/report.json")
        assert path.with_name("report.html").is_file()
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def _read(self) -> None:
        stream = self.process.stdout if self._own is None else os.fdopen(self._own, "rb")
        assert stream is not None
        with stream, contextlib.suppress(OSError):  # a terminal whose other side is gone
            for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                self.said.append(line)
                self._lines.put(line)
        self._lines.put(None)


def test_a_whole_run_reports_what_happened_and_leaves_nothing(tmp_path: Path) -> None:
    """Counts are exact on any machine; how fast and how well it went is for the demo that CI checks."""
    with Demo(tmp_path, seconds=12) as demo:  # the last step has the last 1.7 s
        demo.until(SECOND)
        assert demo.end() == 0
        assert demo.children
        assert not demo.left()
    report = demo.report()
    faults = demo_report.faults(report)
    assert not [fault for fault in faults if "missing" in fault]
    assert (report["lost"], report["duplicates"], report["dead_letters"]) == (0, 0, 0)
    assert report["queries_sent"] == report["predictions_distinct"] == report["feedback_sent"]
    assert report["observations_applied"] == report["observations_joined"] > 0
    assert report["interrupted"] is False
    assert 0 < report["steps_s"]["broker"] < report["steps_s"]["roles"] < report["first_prediction_s"]
    said = "\n".join(demo.said)
    assert "svc answers wrongly from now on" in said
    assert "svc is mended" in said
    assert "neighbours 2 gets all queries for neighbours as soon as it is loaded" in said
    seconds = [int(found[1]) for line in demo.said if (found := re.match(SECOND, line))]
    assert seconds == sorted(set(seconds)), "each is shown once"
    assert not list(demo.temporary.iterdir())


def test_a_signal_before_the_first_query_ends_it_without_a_report(tmp_path: Path) -> None:
    """There is nothing to report, and that is no failure."""
    with Demo(tmp_path, seconds=60) as demo:
        demo.until("five models")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 0
        assert not demo.left()
    assert "nothing to report" in demo.said[-1]
    assert not list((tmp_path / "reports").glob("*"))


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Nobody waits for a report that he does not want; still no process and no file is left."""
    with Demo(tmp_path, seconds=60) as demo:
        demo.until(SECOND)
        demo.process.send_signal(signal.SIGINT)
        demo.until("ending early")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(END_S / 2) == TWICE_INTERRUPTED
        assert not demo.left()
    assert not list(demo.temporary.iterdir())


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("setsid")), reason="needs make and setsid(1)")
def test_ctrl_c_ends_it_with_a_report_of_what_ran_and_is_no_failure_of_make(tmp_path: Path) -> None:
    """The terminal's Ctrl-C reaches the demo alone, so that `make` sees its orderly end: exit code 0."""
    (tmp_path / "Makefile").write_text(f"demo:\n\t@{shlex.join(COMMAND)}\n", encoding="utf-8")
    with Demo(tmp_path, seconds=60, argv=("make", "demo"), terminal=True) as demo:
        demo.until(r"[2-9] of 60 s")
        demo.press(b"\x03")
        assert demo.end() == 0
        assert not demo.left()
    report = demo.report()
    assert report["interrupted"] is True
    assert 2 <= report["seconds_run"] < 60
    assert (report["lost"], report["duplicates"]) == (0, 0)
    assert report["observations_applied"] == report["observations_joined"] > 0
    assert report["models"]["svc"]["share_during"] is None
