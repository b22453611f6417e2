"""Alerts of processes that are silent, died, or came back: who it is, what follows from it, and what helps."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from streams.control.page.page_types import WORKER, Alert, run, skysail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streams.control.page.page_types import ProcessRow

# How long a restart, or a return, is worth telling; the table keeps the number of restarts.
TOLD_S: Final = 120.0
# So long figures of the last minute hold what was not answered meanwhile.
WORKED_OFF_S: Final = 70.0
ROLES = {
    "selection": "queries are not answered",
    "joiner": "feedback is not joined; it waits in Kafka",
    "learner": "nothing is learnt; observations wait in Kafka",
}
# Roles that a deployment may have: missed only if they have reported before.
OPTIONAL = {
    "gateway": "nothing can be asked over HTTP there",
    "telemetry": "no legs of queries are shown to OpenTelemetry; nothing else is missing",
    "record": "nothing is recorded; records wait in Kafka until their retention ends",
}


def silence(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    """Tell of processes that say nothing; one that was stopped is missed only where it was the last of its role."""
    live = {process["role"] for process in processes if not process["silent"]}
    for process in processes:
        role, name = process["role"], process["instance"]
        is_last, heard = role not in live, f"{name} was last heard {process['age_s']:.0f} s ago"
        if not process["silent"] or (process["stopped"] and (not is_last or role in OPTIONAL)):
            continue
        if process["stopped"]:
            text = f"{name} was stopped {process['age_s']:.0f} s ago, the last of its role: {_missing(role)}"
            yield Alert(level="bad", text=text, command=run(role))
        elif is_last:
            text = f"{heard}: {_missing(role)}; `skysail run` starts again what has ended{_hanging(process)}. Else:"
            yield Alert(level="bad", text=text, command=run(role))
        else:
            yield Alert(level="warn", text=f"{heard}; others of its role go on", command=skysail("doctor"))


def absence(processes: Sequence[ProcessRow], stand_still: frozenset[str]) -> Iterator[Alert]:
    """Tell of roles that nobody has."""
    heard = {process["role"] for process in processes}
    for role, what in ROLES.items():
        if role not in heard | stand_still and heard - {"control"}:
            yield Alert(level="bad", text=f"no {role} reports: {what}", command=run(role))


def deaths(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    """Tell of processes that died, until their successors have lived for a while."""
    for process in processes:
        up_s = process["up_s"] or 0.0
        is_page = process["role"] == "control"  # which does not know whether it was stopped
        if process["restarts"] and up_s < TOLD_S and not process["silent"] and not is_page:
            name = process["instance"]
            text = f"{name} {_ending(name, process['exit'])}. It was started again {up_s:.0f} s ago"
            text += f" ({process['restarts']} times in all)" if process["restarts"] > 1 else ""
            yield Alert(level="warn", text=text, command=skysail("doctor"))


def returns(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    """Tell of processes that came back from silence: what waited for them is worked off, and needs no action."""
    for process in processes:
        if process["back_s"] is not None and process["back_s"] < WORKED_OFF_S and not process["silent"]:
            text = f"{process['instance']} is heard again, for {process['back_s']:.0f} s, after {process['away_s']:.0f}"
            text += " s of silence: it had stopped, or its machine had; what waited meanwhile came late"
            yield Alert(level="warn", text=text, command=skysail("doctor"))


def working_off(processes: Sequence[ProcessRow]) -> frozenset[str]:
    """Return the roles of which a process has just come back, or was started again: its figures are of before."""
    return frozenset(
        process["role"]
        for process in processes
        if (process["back_s"] is not None and process["back_s"] < WORKED_OFF_S)
        or (process["restarts"] and (process["up_s"] or 0.0) < WORKED_OFF_S)
    )


def _hanging(process: ProcessRow) -> str:
    """Say how a process that does nothing is made to end; nobody else may do it, as it may only be slow."""
    if process["pid"] is None:
        return ", and nothing that hangs"
    return f", and nothing that hangs: if process {process['pid']:.0f} is still there, kill -9 {process['pid']:.0f}"


def _missing(role: str) -> str:
    is_worker = role.startswith(WORKER)
    return (ROLES | OPTIONAL).get(role, "its model answers nothing" if is_worker else "its figures are missing")


def _ending(name: str, code: float | None) -> str:
    """Say how a process ended; its log is named where it may have said why."""
    if code is None:
        return f"died; its log, {name} under Processes, says why, unless it was killed"
    number = int(code)
    if number >= 0:
        return f"ended with exit status {number}; its log, {name} under Processes, says why"
    try:
        named = f" ({signal.Signals(-number).name})"
    except ValueError:
        named = ""
    by = ": by somebody, or by the system for want of memory" if -number == signal.SIGKILL else ""
    return f"was killed by signal {-number}{named}{by}; its log, {name} under Processes, has its last lines"
