"""The versions of a model that run beside the one that serves: its canaries and shadows, and those that stand by.

Each has its own queue, batch controller and thread, so a slow or broken one delays only its own rows. One that hangs
fails its rows and gets no more. A version that cannot be loaded gets no rows, and loading is retried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import LogMessage
from workers.kernel.model import routing
from workers.kernel.model.loading import Pause
from workers.kernel.model.routing import Routes
from workers.kernel.model.versions import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from schemas.records import Model
    from workers.kernel.model.lane import Lane
    from workers.kernel.model.loading import Loader, Plan
    from workers.kernel.model.retries import Retries
    from workers.kernel.model.versions import Versions
    from workers.kernel.model.warm_up import RecentRows


class _RunningCopy(NamedTuple):
    wanted: Wanted
    lane: Lane


class Candidates:
    """Runs the wanted versions beside the serving one, and no others.

    Attributes:
        failures: attempts to get one ready that failed, and ends of some that ran.
        routes: which version gets which rows.
        lanes: of all that run, including those that get no more rows.
        has_broken: whether one is broken and not yet dropped.
    """

    def __init__(
        self,
        versions: Versions,
        loader: Loader,
        lane: Callable[[Wanted, int], Lane],
        recent: RecentRows,
        retries: Retries,
    ) -> None:
        """Nothing runs yet.

        Args:
            versions: that are wanted.
            loader: loads them.
            lane: returns the lane of a version, and of this copy.
            recent: the last rows, which a version is tried on.
            retries: what could not be loaded.
        """
        self.failures = 0
        self.routes: Routes[Lane] = Routes({}, {})
        self.lanes: list[Lane] = []
        self.has_broken = False
        self._versions = versions
        self._loader = loader
        self._lane = lane
        self._recent = recent
        self._retries = retries
        self._running: dict[str, _RunningCopy] = {}
        self._broken: dict[str, Model] = {}

    def models(self) -> Iterable[tuple[Lane, Model]]:
        """Return the lanes that get rows, with what they ask."""
        return [(running.lane, running.wanted.model) for running in self._running.values()]

    def break_down(self, copy: int, fault: str) -> None:
        """Fail a version's rows from now on, and route around it."""
        for running in self._running.values():
            if running.lane.copy == copy:
                running.lane.fault = fault
                self.has_broken = True
        self.route()

    def take(self, model: Model, copy: int) -> None:
        """Take a copy that does not serve, or no longer: it runs beside if it may answer there, and else is dropped.

        So whoever names a version finds it although another one has taken over: it need not be loaded again.
        """
        share = self._versions.shares(self._versions.wanted.version).get(model.version, 0.0)
        is_there = self._loader.loaded.get(copy) == ""
        if is_there and share != 0.0 and model.version not in self._running:
            self._add(Wanted(model, share), copy)
        else:
            self._loader.release(model, copy)

    def route(self) -> None:
        """Give rows to the versions that run and work, by the shares that are wanted now."""
        shares: dict[str, float] = {}
        takers: dict[str, Lane] = {}
        for version, running in self._running.items():
            now = self._now(running.wanted)
            if now is None or running.lane.fault is not None:
                continue
            takers[version] = running.lane
            if now.share is not None:
                shares[version] = now.share
            self._running[version] = running._replace(wanted=now)
        self.routes = Routes(shares, takers, self._versions.wanted.labels)

    def converge(self, wanted: Sequence[Wanted], served: str) -> Plan[bool]:
        """Run these versions and no others; False if one is not available now and must be tried again.

        A version that is to serve, instead of the one that does, goes on until it can.
        """
        named = {each.model.version: each for each in wanted}
        self.has_broken = False
        self.route()
        for version, running in tuple(self._running.items()):
            if running.lane.fault is not None:
                self._fail(f"{running.wanted.model.name} {version} is of no more use: {running.lane.fault}")
                self._broken[version] = running.wanted.model
            now = named.get(version)
            if version == self._versions.wanted.version != served and version not in self._broken:
                continue
            if now is None or not _alike(now, running.wanted) or version in self._broken:
                yield from self._retire(version)
            else:
                self._running[version] = running._replace(wanted=now)
        self._broken = {v: model for v, model in self._broken.items() if v in named and named[v].model == model}
        is_all = True
        for version, each in named.items():
            if version not in self._running and version not in self._broken:
                is_all = (yield from self._begin(each)) and is_all
        return is_all

    def _now(self, running: Wanted) -> Wanted | None:
        """Return a running version as it is wanted now; None = it gets no rows: it must end, or start again."""
        serving, version = self._versions.wanted, running.model.version
        if version == serving.version:  # until it serves it goes on
            return running
        shares = self._versions.shares(serving.version)
        if version not in shares:
            return None
        now = running._replace(share=shares[version])
        return now if _alike(now, running) else None

    def _begin(self, wanted: Wanted) -> Plan[bool]:
        model, label = wanted.model, routing.label(wanted.share)
        if model.version not in self._versions.shares(self._versions.wanted.version):
            return True  # no longer wanted: others have been loaded before it
        if self._retries.are_over(model.version):
            return False
        copy, fault = yield from self._loader.prepare(model, self._recent.trial(model.version), beside=True)
        if fault:
            self._retries.fail(model.version, fault)
            last = "; it is tried no more" if self._retries.are_over(model.version) else ""
            self._fail(f"{model.name} {model.version} cannot run as {label}: {fault}{last}")
            return False
        self._retries.succeed(model.version)
        self._add(wanted, copy)
        return True

    def _add(self, wanted: Wanted, copy: int) -> None:
        """Run a copy that is loaded."""
        model = wanted.model
        lane = self._lane(wanted, copy)
        lane.is_ready = True
        self._running[model.version] = _RunningCopy(wanted, lane)
        self.lanes.append(lane)
        self.route()
        self._log(f"{model.name} {model.version} runs as {routing.label(wanted.share)}")

    def _retire(self, version: str) -> Plan[None]:
        """Give it no more rows, and drop it when it has answered those that it holds."""
        wanted, lane = self._running.pop(version)
        self.route()
        yield Pause(lambda: lane.is_empty)
        self.lanes.remove(lane)
        self._loader.release(wanted.model, lane.copy)
        self._log(f"{wanted.model.name} {version} runs no longer beside another version")

    def _fail(self, message: str) -> None:
        self.failures += 1
        self._loader.effects.append(LogMessage(message, is_fault=True))

    def _log(self, message: str) -> None:
        self._loader.effects.append(LogMessage(message))


def _alike(one: Wanted, other: Wanted) -> bool:
    """Whether the running one may go on, perhaps with another share: a shadow's answers go to another topic."""
    return (one.model.digest, one.share == 0.0) == (other.model.digest, other.share == 0.0)
