"""Tests that child processes are never left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from deploy.errors import StartError
from deploy.local.logs import tail
from deploy.local.process import ChildProcess, free_port, listens, spawn, stop, wait_ready
from deploy.local.supervisor import Child, Supervisor

ROOT = Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
# Starts a child of its own in the same group, and prints its pid.
PARENT = f"import subprocess, time; print(subprocess.Popen({SLEEP!r}).pid, flush=True); time.sleep(600)"


def wait_for_line(process: ChildProcess, log: Path) -> str:
    """Return the first line the process wrote."""
    wait_ready(process, lambda: log.exists() and "\n" in log.read_text(), name="child", log=log, timeout_s=60)
    return log.read_text().splitlines()[0]


def gone(pid: int, timeout_s: float = 30.0) -> bool:
    """Tell whether a process that is not our child ends in time."""
    try:
        psutil.Process(pid).wait(timeout_s)
    except psutil.TimeoutExpired:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        pass
    return True


def test_a_child_leads_its_own_session(tmp_path: Path) -> None:
    """Ctrl-C in the terminal does not reach it, since it is in another session."""
    process = spawn(SLEEP, log=tmp_path / "log")
    assert psutil.Process(process.pid).is_running()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(fields[3]) == process.pid  # session id
    stop(process)


def test_output_and_environment_reach_where_they_should(tmp_path: Path) -> None:
    """Both streams go to the log file; given variables are added to ours."""
    log = tmp_path / "deep" / "log"
    code = "import os, sys; print(os.environ['ANSWER'], file=sys.stderr); print('PATH' in os.environ)"
    process = spawn([sys.executable, "-c", code], log=log, env={"ANSWER": "42"})
    assert process.wait(60) == 0
    assert sorted(log.read_text().split()) == ["42", "True"]


def test_a_program_that_does_not_exist_is_reported_with_its_name(tmp_path: Path) -> None:
    """The exit code is the shells' 127 and the log names the program."""
    log = tmp_path / "log"
    process = spawn(["/no/such/program"], log=log)
    with pytest.raises(StartError, match=r"exit code 127.*\n.*Cannot execute /no/such/program"):
        wait_ready(process, lambda: False, name="child", log=log, timeout_s=60)


def test_waiting_for_readiness_gives_up_with_the_log(tmp_path: Path) -> None:
    """The error after the deadline shows the last lines and where the log is."""
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", DEAF], log=log)
    wait_for_line(process, log)
    with pytest.raises(StartError, match=r"not ready after 0\.1 s.*log\.\ndeaf"):
        wait_ready(process, lambda: False, name="child", log=log, timeout_s=0.1)
    stop(process, grace_s=0.1)


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    """Stopping always ends."""
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", DEAF], log=log)
    assert wait_for_line(process, log) == "deaf"
    assert stop(process, grace_s=0.2) == -signal.SIGKILL


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    """Stopping ends the whole group, not only its leader."""
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", PARENT], log=log)
    grandchild = int(wait_for_line(process, log))
    stop(process)
    assert gone(grandchild)


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """The tie is to the process: a worker thread may start a child and end."""
    started: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: started.append(spawn(SLEEP, log=tmp_path / "log")))
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.5)
    stop(started[0])


@pytest.mark.skipif(sys.platform != "linux", reason="ties a child to its parent through prctl, which is Linux's")
def test_children_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    """After kill -9 of the starting process nothing it started is left."""
    code = (
        "import pathlib, time\nfrom deploy.local.process import spawn\n"
        f"print(spawn({SLEEP!r}, log=pathlib.Path({str(tmp_path / 'inner')!r})).pid, flush=True)\ntime.sleep(600)"
    )
    log = tmp_path / "log"
    parent = spawn([sys.executable, "-c", code], log=log, env={"PYTHONPATH": str(ROOT)})
    child = int(wait_for_line(parent, log))
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait()
    assert gone(child)


def test_a_supervised_child_that_is_killed_comes_back(tmp_path: Path) -> None:
    """A real process is restarted with a new pid, and none is left after stop."""
    child = Child("sleeper", tuple(SLEEP), tmp_path / "log")
    with Supervisor([child]) as supervisor:
        (before,) = supervisor.status()
        assert before.pid is not None
        psutil.Process(before.pid).kill()
        assert gone(before.pid)
        wait_until_restarted(supervisor)
        (after,) = supervisor.status()
    assert after.pid not in {None, before.pid}
    assert not any(status.alive for status in supervisor.status())
    assert gone(after.pid or 0)


def wait_until_restarted(supervisor: Supervisor) -> None:
    """Poll the status until the first child has been restarted."""
    tick = threading.Event()
    for _ in range(3_000):
        status = supervisor.status()[0]
        if status.alive and status.restarts:
            return
        tick.wait(0.02)
    pytest.fail("not restarted within 60 s")


def test_sigterm_to_a_supervising_process_stops_its_children(tmp_path: Path) -> None:
    """SIGTERM unwinds like Ctrl-C: the children are stopped in an orderly way and the process ends."""
    code = (
        "import pathlib, signal\nfrom deploy.local.process import interrupted_by_sigterm\n"
        "from deploy.local.supervisor import Child, Supervisor\n"
        f"child = Child('c', {tuple(SLEEP)!r}, pathlib.Path({str(tmp_path / 'inner')!r}))\n"
        "try:\n  with interrupted_by_sigterm(), Supervisor([child]) as supervisor:\n"
        "    print(supervisor.status()[0].pid, flush=True)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n  print('stopped', supervisor.status()[0].alive, flush=True)\n"
    )
    log = tmp_path / "log"
    parent = spawn([sys.executable, "-c", code], log=log, env={"PYTHONPATH": str(ROOT)})
    child = int(wait_for_line(parent, log))
    parent.terminate()
    assert parent.wait(60) == 0
    assert tail(log).splitlines()[-1] == "stopped False"
    assert gone(child)


def test_a_free_port_is_not_listened_on() -> None:
    """The helper's port can be used."""
    assert not listens(free_port())
