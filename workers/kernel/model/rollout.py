"""Brings the running versions of a model to the wanted ones: which is loaded when, and which answers.

    topic models ─▶ converge ─┬─ serves: get it ready ─▶ the present one answers the rows read so far ─▶ it takes over
                              └─ beside: get it ready ─▶ rows are routed to it;  gone: it answers the rows it holds

A switch happens inside the worker, not by starting another process. A second member of the group would stop the worker
twice for a rebalance, and queries would be late. If a version cannot be loaded, the present one goes on, and loading is
retried, a bounded number of times. A record about the model begins them anew: its package may have been mended. Loading
may take minutes. Meanwhile `route` gives each running version its new share, or none.

Where two versions do not fit into memory together, the old one is unloaded first (`unload_first`). Queries wait
meanwhile, or are answered without this model at their deadline. If the new version cannot be loaded, the old one is
loaded again.

If a worker cannot load its version when it starts, it takes the last earlier version that can be loaded. It goes on
trying the wanted one. It does the same if the wanted version takes none of the inputs that are asked, and an earlier
one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.contract import LogMessage
from workers.inputs.casting import taken, takes_alike, takes_none
from workers.kernel.model.candidates import Candidates
from workers.kernel.model.loading import Pause
from workers.kernel.model.retries import Retries
from workers.kernel.model.versions import Versions, differs
from workers.kernel.model.warm_up import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.records import Model
    from streams.operators.contract import Effects
    from workers.kernel.model.lane import Lane
    from workers.kernel.model.loading import Loader, Plan
    from workers.kernel.model.versions import Wanted
    from workers.kernel.model.warm_up import RecentRows
    from workers.settings import WorkerSettings

# A start reads the topic from its beginning, with all versions wanted in the past. Only a lasting one is loaded.
SETTLE_US = 300_000
# Rows asked before this start are read within 3 s, or not at all.
RECALL_US = 4_000_000


class Rollout:
    """Gets the wanted versions ready, one after the other.

    Attributes:
        versions: that are wanted.
        served: the version that answers.
        beside: what runs beside it.
        retries: what could not be loaded.
        recent: the last rows, which the next version is tried on.
    """

    def __init__(
        self,
        model: Model,
        serving: Lane,
        loader: Loader,
        lane: Callable[[Wanted, int], Lane],
        recent: RecentRows,
        settings: WorkerSettings,
    ) -> None:
        """Nothing is loaded before the first `advance`.

        Args:
            model: that is served.
            serving: its lane.
            loader: loads versions.
            lane: returns the lane of a version that runs beside it, and of this copy.
            recent: the last rows.
            settings: how versions follow each other.
        """
        self.versions = Versions(model)
        self.served = model
        self.recent = recent
        self.retries = Retries(settings.load_retries)
        self.beside = Candidates(self.versions, loader, lane, recent, self.retries)
        self._serving = serving
        self._loader = loader
        self._drain_us = settings.drain_us
        self._retry_us = settings.load_retry_us
        self._unload_first = settings.unload_first
        self._is_lost = False  # no version is loaded, because `served` could not be
        self._failing = ""  # the wanted version, which could not be loaded
        self._failures = self._switches = 0
        self._ready_s: dict[str, float] = {}
        self._is_first = True  # no version has been compared yet with the rows asked before this start
        self._now_us = 0
        self._plan = self._run()
        self._pause: Pause | None = None

    def is_stirred(self, now_us: int) -> bool:
        """Tell whether there is anything to do."""
        pause = self._pause
        return pause is None or pause.is_over() or (pause.until_us is not None and now_us >= pause.until_us)

    def next_deadline(self) -> int | None:
        """Return when `advance` must be called at the latest (us)."""
        return 0 if self._pause is None else self._pause.until_us

    def advance(self, now_us: int) -> Effects:
        """Do what there is to do."""
        self._now_us = now_us
        while self.is_stirred(now_us):
            self._pause = None  # a plan that failed waits for nothing more, and would fail again
            self._pause = next(self._plan)
        effects = self._loader.effects
        self._loader.effects = []
        return effects

    def statistics(self) -> Mapping[str, float]:
        """Return how versions changed."""
        model = self.served.name
        label = f"{{model={model}}}"
        return {
            **({f"version_failing{{model={model},version={self._failing}}}": 1.0} if self._failing else {}),
            **({f"model_not_loaded{label}": 1.0} if self._is_lost else {}),
            **self.retries.statistics(model),
            **{f"ready_s{{model={model},version={version}}}": took for version, took in self._ready_s.items()},
            f"version_switches_total{label}": float(self._switches),
            f"version_failures_total{label}": float(self._failures + self.beside.failures),
        }

    def _run(self) -> Plan[None]:
        """Get the wanted versions ready, again and again; the plan never ends."""
        yield from self._load_first()
        yield Pause(lambda: self.recent.is_recalled, self._now_us + RECALL_US)
        while True:
            yield self._change()
            self._begin_anew()
            yield Pause(lambda: False, self._now_us + SETTLE_US)
            while not (yield from self._converge()):
                yield self._change(self._now_us + self._retry_us if self.retries.has_any else None)
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Take what is wanted now; versions that were given up are tried again if a record said so."""
        if self.versions.has_changed:
            self.retries.begin_anew()
        self.versions.has_changed = False

    def _change(self, until_us: int | None = None) -> Pause:
        return Pause(lambda: self.versions.has_changed or self.beside.has_broken, until_us)

    def _load_first(self) -> Plan[None]:
        copy, fault = yield from self._loader.prepare(self.served, Trial(), vital=True)
        if not fault:
            self._serving.succeed(self.served.version, copy)
            return
        self._serving.fault = f"it is not loaded: {fault}"
        self.retries.fail(self.served.version, fault)
        self._log(f"{_named(self.served)} cannot be loaded, its rows fail until one can be: {fault}", is_fault=True)
        self._is_lost, self._failing = True, self.served.version
        self.versions.has_changed = True

    def _converge(self) -> Plan[bool]:
        """Serve the wanted version, then run the wanted ones beside it; False if one is not available now."""
        wanted = self.versions.wanted
        if self._failing != wanted.version:
            self._failing = ""
        if self._is_lost and self._failing:  # loading it again may take long, or end this process: others go before it
            yield from self._fall_back(wanted)
        is_served = not (self._is_lost or differs(wanted, self.served)) or (yield from self._succeed(wanted))
        if not is_served and differs(self.versions.wanted, wanted):
            return False  # another one is wanted by now
        if self._is_lost:
            yield from self._fall_back(wanted)
        elif self._is_first and not differs(wanted, self.served):
            is_served = not (yield from self._give_way(wanted))
        self._is_first = False
        self._failing = "" if is_served else wanted.version
        # Read again what is wanted: loading may have taken minutes.
        known, is_all = self.versions.beside(self.served.version)
        return (yield from self.beside.converge(known, self.served.version)) and is_served and is_all

    def _fall_back(self, wanted: Model) -> Plan[None]:
        """Serve the latest version added before the wanted one that can be loaded; the wanted one is retried."""
        for model in self.versions.before(wanted):
            if differs(model, wanted) and (yield from self._succeed(model)):
                return

    def _give_way(self, wanted: Model) -> Plan[bool]:
        """Serve an earlier version that takes the asked inputs, if the wanted one does not; returns whether it does."""
        for model in self.versions.before(wanted):
            if not takes_alike(wanted, model) and takes_none(wanted, model, self.recent.rows()):
                what = f"{_named(wanted)} takes {taken(wanted)}, and nothing that was asked of late"
                self._log(f"{what}: {model.version}, which takes {taken(model)}, is to answer", is_fault=True)
                self.retries.fail(wanted.version, what, is_attempt=False)
                return (yield from self._succeed(model))
        return False

    def _succeed(self, model: Model) -> Plan[bool]:
        """Get a version ready and let it take over; False if it is not available now."""
        if self.retries.are_over(model.version):
            return False
        refusal = self._refusal(model)
        if refusal:
            self.retries.fail(model.version, refusal, is_attempt=False)
            self._log(f"{_named(model)} cannot take over, {self.served.version} goes on: {refusal}", is_fault=True)
            return False
        trial, wanted = self.recent.trial(model.version), self.versions.wanted
        unload_first = self._unload_first and not self._is_lost
        if unload_first:
            yield from self._drain()
            self._vacate()
        started_us = self._now_us
        copy, fault = yield from self._loader.prepare(model, trial)
        if fault:
            going_on = "no version" if self._is_lost else self.served.version
            self.retries.fail(model.version, fault)
            last = "; it is tried no more" if self.retries.are_over(model.version) else ""
            self._log(f"{_named(model)} cannot take over, {going_on} goes on: {fault}{last}", is_fault=True)
            if unload_first:
                yield from self._restore()
            return False
        self.retries.succeed(model.version)
        took_s = (self._now_us - started_us) / 1e6
        self._ready_s = {model.version: took_s}
        tried = len(trial.asked) + len(trial.answered)
        self._log(f"{_named(model)} is ready: loaded and tried on {tried} rows in {took_s:.1f} s")
        if not unload_first:
            yield from self._drain()
            if not self._is_lost and differs(self.versions.wanted, wanted):  # another one is, since it was loaded
                self.beside.take(model, copy)
                return False
        self._take_over(model, copy)
        return True

    def _refusal(self, model: Model) -> str:
        """Say why a version is not even loaded: it takes none of the inputs that the present one is asked."""
        if self._is_lost or takes_alike(model, self.served):
            return ""
        rows = self.recent.rows()
        if not takes_none(model, self.served, rows):
            return ""
        message = f"it answers none of {len(rows)} rows that were asked just now: it takes {taken(model)}"
        return f"{message}, and {self.served.version} {taken(self.served)}"

    def _drain(self) -> Plan[None]:
        """Return when the present version has answered the rows read so far, or its time for that is over.

        A rollback from a slow version must not wait for that one's queue.
        """
        mark, lane = self._serving.batcher.mark, self._serving
        end_us = self._now_us + self._drain_us
        yield Pause(lambda: lane.running is None and not lane.batcher.waits_before(mark), end_us)
        yield Pause(lambda: lane.running is None)

    def _vacate(self) -> None:
        """Unload the present version."""
        self._serving.is_ready = False
        self._loader.release(self.served, self._serving.copy)

    def _restore(self) -> Plan[None]:
        """Load the unloaded version again."""
        while True:
            copy, fault = yield from self._loader.prepare(self.served, Trial())
            if not fault:
                return self._take_over(self.served, copy)
            self._log(f"{_named(self.served)} cannot be loaded again: {fault}", is_fault=True)
            yield Pause(lambda: self.versions.has_changed, self._now_us + self._retry_us)
            self.versions.has_changed = False

    def _take_over(self, model: Model, copy: int) -> None:
        """Let a version answer from now on, and drop the present one."""
        if differs(model, self.served):
            self._log(f"{_named(model)} answers from now on, no longer {self.served.version}")
            self._switches += 1
        before, copy_before = self.served, self._serving.copy
        self._serving.succeed(model.version, copy)
        self.served, self._is_lost = model, False
        self.beside.take(before, copy_before)
        self.recent.clear()

    def _log(self, message: str, *, is_fault: bool = False) -> None:
        self._failures += is_fault
        self._loader.effects.append(LogMessage(message, is_fault))


def _named(model: Model) -> str:
    return f"{model.name} {model.version}"
