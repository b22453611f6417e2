"""Alerts in words, each with the next command: the cause first, then the worst."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streams.control.figures import parse
from streams.control.history import Key
from streams.control.page.advice import application
from streams.control.page.life import absence, deaths, returns, silence, working_off
from streams.control.page.mute_models import mute
from streams.control.page.outages import WITHOUT_REDIS, kafka_back, kafka_down, redis_down
from streams.control.page.page_types import WORKER, Alert, of, run, skysail
from streams.control.page.worse import worse
from streams.operators.statistics import from_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from streams.control.history import Risen, Series
    from streams.control.losses import WorseLoss
    from streams.control.page.page_types import ApplicationRow, LetterRow, ProcessRow
    from streams.control.page.visibility import View

# A lag is growing if it is above what a poll brings and twice what it was half a minute ago.
LAG_RECORDS, LAG_STEPS = 500, 6
# A process has one thread, so it is at its limit before it uses a core in full.
BUSY_CORES = 0.8
# The counter of `streams.runtime.role.batch_watch`.
GIVEN_UP = "batches_given_up_total"
# What of an application follows from a server that was away.
AFTER_KAFKA, WITHOUT_STATES = ("defaults", "late"), ("without_state",)
# What of an application follows from losses that rose.
AFTER_RISE = ("losses",)


class LoadFault(NamedTuple):
    """What is known of a version that could not be loaded: failed attempts, whether it is given up, and the reason."""

    attempts: int
    is_given_up: bool
    reason: str

    def __str__(self) -> str:
        """Return it for people."""
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        tried = f"tried {times}, and no more: add it again once it is mended" if self.is_given_up else f"tried {times}"
        return f"{tried} ({self.reason})" if self.attempts else self.reason


class WorkerVersions(NamedTuple):
    """Of models that a worker serves.

    Attributes:
        serving: the version that answers, by model.
        failing: one that is to serve and cannot, by model.
        not_loaded: models of which no version could be loaded.
        faults: of versions that could not be had, by model and version.
        hosted: models that are planned on a host, in memory or not.
        shadows: models and versions that answer nobody.
    """

    serving: Mapping[str, str]
    failing: Mapping[str, str]
    not_loaded: Collection[str]
    faults: Mapping[tuple[str, str], LoadFault] = MappingProxyType({})
    hosted: Collection[str] = ()
    shadows: Collection[tuple[str, str]] = ()


def alerts(
    applications: Sequence[ApplicationRow],
    processes: Sequence[ProcessRow],
    letters: Sequence[LetterRow],
    risen: tuple[Risen, Risen],
    versions: WorkerVersions,
    view: View,
    now_us: int,
    more: Sequence[Alert] = (),
    risen_losses: Sequence[WorseLoss] = (),
) -> list[Alert]:
    """Return the alerts; if a server is down, those that follow from it are left out.

    Args:
        applications: as they are shown.
        processes: as they are shown.
        letters: dead letters, as they are shown.
        risen: counters in the last minute, and in the last seconds.
        versions: of the models that a worker serves.
        view: the page's knowledge of itself.
        now_us: the time.
        more: what others have found.
        risen_losses: of applications and models.
    """
    if cause := kafka_down(view, now_us):
        return [cause]
    minute, lately = risen
    back, redis = kafka_back(view, now_us), redis_down(view, lately)
    follows = (*(AFTER_KAFKA if back else ()), *(WITHOUT_STATES if redis else ()))
    returned, worsened = working_off(processes), {each.application for each in risen_losses}
    stand_still = WITHOUT_REDIS if redis else frozenset()
    others = [row for row in processes if row["instance"] != view.place.instance and row["role"] not in stand_still]
    served = {
        *versions.serving,
        *versions.hosted,
        *(row["role"].removeprefix(WORKER) for row in processes if row["role"].startswith(WORKER)),
    }
    is_busy = any(row["role"] == "selection" and (row["cpu"] or 0.0) > BUSY_CORES for row in processes)
    found = [
        *(silence(others) if view.is_settled else ()),
        *(absence(processes, stand_still) if view.is_settled else ()),
        *deaths(others),
        *(() if back else returns(others)),
        *worse(risen_losses),
        *(
            of(row["name"], each)
            for row in applications
            for each in application(
                row, minute, served, {*follows, *_consequences(row, returned, worsened)}, is_busy=is_busy
            )
        ),
        *_refused(versions),
        *_mute(minute, versions, returned),
        *_given_up(minute),
        *_failures(minute),
        *_lags(others),
        *_letters(letters),
        *more,
    ]
    causes = [cause for cause in (redis, back) if cause]
    return [*causes, *sorted(found, key=lambda alert: alert["level"])]


def failing(model: str, wanted: str, answers: str, fault: LoadFault | None = None) -> str:
    """Return the words for a wanted version that could not be loaded."""
    return f"{model} {wanted} is wanted, {answers} answers; {_why(fault)}"


def not_loaded(model: str, fault: LoadFault | None = None) -> str:
    """Say that no version of a model could be had."""
    return f"{model} cannot be loaded, nor another version of it: its queries fail; {_why(fault)}"


def not_beside(model: str, version: str, fault: LoadFault) -> str:
    """Say that a version could not be had that is to run beside the one that serves."""
    return f"{model} {version} cannot run beside the version that serves; {_why(fault)}"


def _why(fault: LoadFault | None) -> str:
    return "see its worker's log" if fault is None else str(fault)


def _refused(versions: WorkerVersions) -> Iterator[Alert]:
    serving, wanted, missing, faults, *_ = versions
    for model in sorted(missing):
        text = not_loaded(model, faults.get((model, wanted.get(model, ""))))
        yield Alert(level="bad", text=text, command=skysail("model", "show", model))
    for model, version in sorted(wanted.items()):
        if model not in missing:
            text = failing(model, version, serving.get(model, "none"), faults.get((model, version)))
            yield Alert(level="bad", text=text, command=skysail("model", "rollback", model))
    for (model, version), fault in sorted(faults.items()):
        if model not in missing and wanted.get(model) != version:
            command = skysail("model", "show", model)
            yield Alert(level="warn", text=not_beside(model, version, fault), command=command)


def _consequences(row: ApplicationRow, returned: Collection[str], worsened: Collection[str]) -> Iterator[str]:
    """Yield the figures of an application that follow from a process that came back, or from losses that rose."""
    if "selection" in returned or any(f"{WORKER}{model['name']}" in returned for model in row["models"]):
        yield from AFTER_KAFKA
    if row["name"] in worsened:
        yield from AFTER_RISE


def _mute(risen: Risen, versions: WorkerVersions, returned: Collection[str]) -> Iterator[Alert]:
    """Tell of models that answer nothing, but for what an application's own alert or a process's return explains."""
    alive = {name for name in versions.serving if f"{WORKER}{name}" not in returned and "selection" not in returned}
    for each in mute(risen, alive - {*versions.not_loaded}, versions.shadows):
        if each.cause not in ("failed", "invalid"):
            yield Alert(level="bad", text=each.text, command=each.command)


def _given_up(risen: Risen) -> Iterator[Alert]:
    for key, count in sorted(risen.items()):
        if key.name == GIVEN_UP:
            text = f"{key.model}: nobody told the end of {count:.0f} of its batches; they failed, and it is asked again"
            yield Alert(level="warn", text=text, command=skysail("model", "show", key.model))


def _failures(risen: Risen) -> Iterator[Alert]:
    if failures := risen.get(Key("kernel_failures_total")):
        text = f"{failures:.0f} errors of the program itself in the last minute; the logs have them"
        yield Alert(level="bad", text=text, command=skysail("doctor"))


def _lags(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    for process in processes:
        if not process["silent"] and _is_growing(process["lags"]):
            text = f"{process['instance']} falls behind: {process['lags'][-1]:,.0f} records are unread, and it grows"
            yield Alert(level="warn", text=text, command=run(process["role"]))


def _is_growing(lags: Series) -> bool:
    newest, before = lags[-1], lags[-1 - LAG_STEPS]
    return newest is not None and before is not None and newest > LAG_RECORDS and newest > 2 * before


def _letters(letters: Sequence[LetterRow]) -> Iterator[Alert]:
    for row in letters:
        if row["minute"]:
            letter = "dead letter" if round(row["minute"]) == 1 else "dead letters"
            text = f"{row['minute']:.0f} {letter} in the last minute: {row['topic']}, cause {row['cause']}"
            yield Alert(level="warn", text=text, command=row["command"])


def unserved(topics: Mapping[str, float]) -> Iterator[Alert]:
    """Tell of partitions beyond those of the deployment: users notice where somebody writes to them."""
    if waiting := [f"{count:,.0f} records in {topic}" for topic, count in sorted(topics.items()) if count]:
        text = (
            f"{' and '.join(waiting)} are read by nobody: they lie in partitions that were added, which are not served"
        )
        yield Alert(level="bad", text=text, command=skysail("topics", "check"))
    elif topics:
        text = f"partitions were added to {', '.join(sorted(topics))}; the ones from before are served"
        yield Alert(level="warn", text=text, command=skysail("topics", "check"))


def load_faults(gauges: Iterable[Mapping[str, float]]) -> dict[tuple[str, str], LoadFault]:
    """Return the versions that some worker could not load, by model and version; of several workers the worst off.

    Args:
        gauges: of each process that reports.
    """
    found: dict[tuple[str, str], LoadFault] = {}
    for figures in gauges:
        named = [(*parse(full), value) for full, value in figures.items()]
        given_up = {(labels.get("model"), labels.get("version")) for n, labels, _ in named if n == "version_given_up"}
        for name, labels, attempts in named:
            if name == "version_fault":
                place = labels.get("model", ""), labels.get("version", "")
                fault = LoadFault(int(attempts), place in given_up, from_label(labels.get("reason", "")))
                found[place] = max(found.get(place, fault), fault)
    return found
