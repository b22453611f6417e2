"""Tests of back-off and supervision in virtual time, without processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.local.supervisor import Backoff, Child, Supervisor
from streams.runtime.metrics import LAST_EXIT_VARIABLE


@dataclass
class FakeProcess:
    """A process that lives until it is told to die."""

    pid: int
    stubborn: bool = False
    returncode: int | None = None
    signals: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        """Return the exit code, if it has one."""
        return self.returncode

    def terminate(self) -> None:
        """Take SIGTERM, and end unless stubborn."""
        self.signals.append("TERM")
        if not self.stubborn:
            self.returncode = 0

    def kill_group(self) -> None:
        """Take SIGKILL."""
        self.signals.append("KILL")
        self.returncode = -9 if self.returncode is None else self.returncode

    def wait(self, _timeout_s: float | None = None) -> int | None:
        """Return at once: time is virtual."""
        return self.returncode


class Machine:
    """A clock that is set by hand and a launcher that hands out fake processes."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.launched: list[FakeProcess] = []
        self.broken = False
        self.variables: list[dict[str, str]] = []

    def clock(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def launch(self, argv: tuple[str, ...], *, log: Path, env: dict[str, str]) -> FakeProcess:
        """Start a fake process, or fail as a full disk does."""
        if self.broken:
            raise OSError("no space left")
        self.launched.append(FakeProcess(pid=len(self.launched) + 1))
        self.variables.append(dict(env))
        return self.launched[-1]

    def supervise(self, *names: str) -> Supervisor:
        """Return a supervisor of children with these names, stepped once."""
        children = [Child(name, (name,), Path("/nowhere")) for name in names]
        supervisor = Supervisor(children, clock=self.clock, launch=self.launch)
        supervisor.step()
        return supervisor


def test_a_process_is_told_how_the_one_before_it_ended() -> None:
    """Its reports tell that on; the first one has nobody before it."""
    machine = Machine()
    supervisor = machine.supervise("a")
    machine.launched[0].returncode = -9
    supervisor.step()
    machine.now_s += 1.0
    supervisor.step()
    assert machine.variables == [{}, {LAST_EXIT_VARIABLE: "-9"}]


def test_waits_double_from_a_fifth_of_a_second_to_ten_seconds() -> None:
    """The wait after each death in a row is twice the one before, up to the cap."""
    waits = [Backoff().delay_s(deaths) for deaths in range(1, 9)]
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_million_deaths_wait_no_longer_than_the_cap() -> None:
    """The wait stays finite however often a process dies."""
    assert Backoff().delay_s(1_000_000) == 10.0


def test_thirty_seconds_alive_forget_earlier_deaths() -> None:
    """A death after a steady life counts as the first; one before that as one more."""
    assert Backoff().deaths(7, alive_s=30.0) == 1
    assert Backoff().deaths(7, alive_s=29.9) == 8


def test_every_child_is_started_once() -> None:
    """Steps start what is not running and leave alone what is."""
    machine = Machine()
    supervisor = machine.supervise("a", "b")
    supervisor.step()
    assert [status.pid for status in supervisor.status()] == [1, 2]
    assert all(status.alive and status.restarts == 0 for status in supervisor.status())


def test_a_dead_child_is_restarted_after_its_wait_and_not_before() -> None:
    """The first restart comes 0.2 s after the death was noticed."""
    machine = Machine()
    supervisor = machine.supervise("a")
    machine.launched[0].returncode = 3
    supervisor.step()
    (dead,) = supervisor.status()
    assert (dead.alive, dead.pid, dead.exit_code, dead.restarts) == (False, None, 3, 0)
    machine.now_s += 0.19
    supervisor.step()
    assert len(machine.launched) == 1
    machine.now_s += 0.02
    supervisor.step()
    (back,) = supervisor.status()
    assert (back.alive, back.pid, back.restarts) == (True, 2, 1)


def test_what_a_dead_child_had_started_is_killed() -> None:
    """The rest of its process group does not outlive a child."""
    machine = Machine()
    supervisor = machine.supervise("a")
    machine.launched[0].returncode = 1
    supervisor.step()
    assert machine.launched[0].signals == ["KILL"]


def test_a_child_that_keeps_dying_is_started_ever_more_slowly() -> None:
    """Ten virtual minutes of instant deaths cost fewer than seventy starts."""
    machine = Machine()
    supervisor = machine.supervise("a")
    for _ in range(6000):
        machine.launched[-1].returncode = 1
        machine.now_s += 0.1
        supervisor.step()
    assert 60 <= len(machine.launched) <= 70


@pytest.mark.parametrize(("code", "said"), [(3, "ended with exit code 3"), (-9, "was killed by signal 9")])
def test_how_a_child_ended_is_said(caplog: pytest.LogCaptureFixture, code: int, said: str) -> None:
    """A signal by its number, not as an exit code below 0."""
    machine = Machine()
    supervisor = machine.supervise("a")
    machine.launched[0].returncode = code
    supervisor.step()
    assert f"a (pid 1) {said}; starts again" in caplog.text


def test_a_child_that_ends_by_itself_is_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last lines of this life of it are told with its death; not those of an earlier one."""
    machine, log = Machine(), tmp_path / "a.log"
    log.write_text("of an earlier run\n")
    supervisor = Supervisor([Child("a", ("a",), log)], clock=machine.clock, launch=machine.launch)
    supervisor.step()
    with log.open("a") as file:
        file.write("skysail: port 6066 is taken\n")
    machine.launched[0].returncode = 1
    supervisor.step()
    assert "its last lines:\n  skysail: port 6066 is taken" in caplog.text
    assert "earlier" not in caplog.text


def test_a_child_that_is_killed_is_quoted_only_if_it_is_killed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once is somebody's wish; twice may be a want of memory, and the log may know of what."""
    machine, log = Machine(), tmp_path / "a.log"
    supervisor = Supervisor([Child("a", ("a",), log)], clock=machine.clock, launch=machine.launch)
    for life in ("first", "second"):
        machine.now_s += 1
        supervisor.step()
        with log.open("a") as file:
            file.write(f"the {life} life\n")
        machine.launched[-1].returncode = -9
        supervisor.step()
    assert "the first life" not in caplog.text
    assert "the second life" in caplog.text


def test_a_child_can_be_added_while_others_run() -> None:
    """It is started at once, and restarted as the others; once it is stopped, nothing starts any more."""
    machine = Machine()
    supervisor = machine.supervise("a")
    supervisor.add(Child("b", ("b",), Path("/nowhere")))
    assert [status.alive for status in supervisor.status()] == [True, True]
    with pytest.raises(ValueError, match="already"):
        supervisor.add(Child("b", ("b",), Path("/nowhere")))
    supervisor.stop()
    supervisor.add(Child("c", ("c",), Path("/nowhere")))
    assert len(machine.launched) == 2


def test_a_death_does_not_touch_the_others() -> None:
    """Only the dead child is restarted."""
    machine = Machine()
    supervisor = machine.supervise("a", "b")
    machine.launched[0].returncode = 1
    for _ in range(5):
        machine.now_s += 0.1
        supervisor.step()
    assert [status.restarts for status in supervisor.status()] == [1, 0]


def test_a_launch_that_fails_is_tried_again() -> None:
    """An operating-system error at start counts as a death, not as the end of supervision."""
    machine = Machine()
    machine.broken = True
    supervisor = machine.supervise("a")
    assert not supervisor.status()[0].alive
    machine.broken = False
    machine.now_s += 0.3
    supervisor.step()
    assert supervisor.status()[0].alive


def test_stopping_terminates_every_child_and_starts_none_again() -> None:
    """After stop nothing is alive and steps do nothing."""
    machine = Machine()
    supervisor = machine.supervise("a", "b")
    supervisor.stop()
    machine.now_s += 60
    supervisor.step()
    assert len(machine.launched) == 2
    assert [process.signals[0] for process in machine.launched] == ["TERM", "TERM"]
    assert not any(status.alive for status in supervisor.status())


def test_it_may_be_stopped_before_it_has_quite_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal stops a deployment from one thread while another one still starts it."""
    machine = Machine()
    supervisor = machine.supervise("a")

    class Late(threading.Thread):
        def start(self) -> None:
            supervisor.stop()
            super().start()

    monkeypatch.setattr("deploy.local.supervisor.threading.Thread", Late)
    supervisor.start().stop()
    assert not any(isinstance(thread, Late) for thread in threading.enumerate())
    assert not supervisor.status()[0].alive


def test_a_child_that_ignores_the_request_is_killed() -> None:
    """SIGKILL follows for whoever is left after the grace period."""
    machine = Machine()
    supervisor = machine.supervise("a")
    machine.launched[0].stubborn = True
    supervisor.stop()
    assert machine.launched[0].signals == ["TERM", "KILL"]
    assert machine.launched[0].returncode == -9


def test_two_children_of_one_name_are_refused() -> None:
    """A status by name must mean one child."""
    with pytest.raises(ValueError, match="same name"):
        Supervisor([Child("a", ("a",), Path("/x")), Child("a", ("b",), Path("/x"))])


def test_a_child_that_is_removed_is_stopped_for_good_and_the_others_go_on() -> None:
    """Another one may be added under its name."""
    machine = Machine()
    supervisor = machine.supervise("a", "b")
    supervisor.remove("a")
    machine.now_s += 60
    supervisor.step()
    assert [(status.name, status.pid) for status in supervisor.status()] == [("b", 2)]
    supervisor.add(Child("a", ("a",), Path("/nowhere")))
    assert [status.pid for status in supervisor.status()] == [2, 3]


def test_a_child_that_is_removed_without_grace_is_killed_and_can_be_added_as_it_was() -> None:
    """As `kill -9` does: it is not asked."""
    machine = Machine()
    supervisor = machine.supervise("a")
    child = supervisor.remove("a", 0.0)
    assert machine.launched[0].signals == ["KILL"]
    supervisor.add(child)
    assert [status.restarts for status in supervisor.status()] == [0]
