"""Work in a copy of the process: what comes back, what stays away, and what ends it. Each runs in an interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


def ran(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of these lines to its end."""
    text = f"from deploy.connect.forked import aside\n{program}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT)


def test_what_the_work_returns_comes_back_and_what_it_loads_does_not() -> None:
    """A megabyte arrives whole; the module that made it is not there afterwards."""
    program = (
        "import sys\ndef work():\n    import colorsys\n    return [colorsys.__name__] * 100_000\n"
        "found = aside(work)\nprint(len(found), found[0], 'colorsys' in sys.modules)"
    )
    assert ran(program).stdout == "100000 colorsys False\n"


def test_what_the_work_raises_is_raised_with_where_that_was() -> None:
    """The error is of its own kind; its notes show the line in the copy."""
    program = (
        "from deploy.errors import UsageError\ndef work():\n    raise UsageError('no such model')\n"
        "try:\n    aside(work)\nexcept UsageError as error:\n    print(error, 'in work' in error.__notes__[0])"
    )
    assert ran(program).stdout == "no such model True\n"


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    """Its class wants other arguments than those that it keeps, or lives in a module of C."""
    program = (
        "from deploy.errors import DeployError\nclass Odd(Exception):\n"
        "    def __init__(self, cause, message):\n        super().__init__(f'{cause}: {message}')\n"
        "def work():\n    raise Odd('invalid', 'no record')\n"
        "try:\n    aside(work)\nexcept DeployError as error:\n    print(error, 'in work' in error.__notes__[0])"
    )
    assert ran(program).stdout == "Odd: invalid: no record True\n"


def test_where_nobody_is_told_of_children_the_answer_counts() -> None:
    """A supervisor may have SIGCHLD ignored, which its children inherit."""
    program = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nprint(aside(lambda: 7))"
    assert ran(program).stdout == "7\n"


def test_a_copy_that_is_killed_is_an_error_that_says_so() -> None:
    """Out of memory, for instance: the message names the signal."""
    done = ran("import os\naside(lambda: os.kill(os.getpid(), 9))")
    assert "was stopped (exit code -9)" in done.stderr


def test_the_copy_ends_with_the_process_that_waits_for_it() -> None:
    """A role that is stopped while it waits for a broker leaves nobody behind."""
    program = (
        "import os, time\nfrom deploy.connect.forked import aside\n"
        "def work():\n    print(os.getpid(), flush=True)\n    time.sleep(600)\naside(work)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        copy = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
    end_s = time.monotonic() + 60
    while copy.is_running() and copy.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end_s
        time.sleep(0.02)
