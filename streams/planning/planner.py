"""Plans the hosts of each pool: what each model is asked and may take, what each host then does, and why.

    models, applications, profiles ─▶ Planner ─▶ Plan, where a pool's is a new one
    rates and hosts of the reports ──────┘

It is a fold over compacted topics, its own topic `plan` among them: after a restart it goes on with what was planned.
The arithmetic is that of `policies.packing`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from policies.graph import needed
from policies.packing.epochs import Planned, PlanPace, planned
from policies.packing.work import BatchTimes, Share, Work
from schemas.records import Place, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.records import Application, Model, Profile

_T = TypeVar("_T")

# Of an objective: the way to the host and back (four legs through Kafka), at most a fifth of it.
HOPS_US: Final = 10_000
_HOPS_PART: Final = 5
# Of a model that was never run: it is small, until its first batches tell.
UNKNOWN: Final = BatchTimes((1,), (1_000.0,))
# Of a model that no application names.
USUAL_OBJECTIVE_US: Final = 100_000
# What moves is loaded before it is read there. The first is for a plan to be read by all hosts, and for loading to
# begin. The most is for what takes long to load: until then it is late where it is.
READ_US: Final = 1_000_000
MOST_LOADING_US: Final = 5_000_000


class Pool(NamedTuple):
    """One pool.

    Attributes:
        name: of it.
        memory_bytes: that the models of each of its hosts may take.
        hosts: that were asked for: so many have work.
    """

    name: str
    memory_bytes: int
    hosts: int = 1


class Planner:
    """Plans all pools of a deployment.

    Args:
        pools: by name.
        pool_of: tells the pool of a model, by its name; None = it is in none.
        pace: how often it plans; the memory is the pool's.

    Attributes:
        plans: the last plan of each pool.
    """

    def __init__(self, pools: Sequence[Pool], pool_of: Callable[[str], str | None], pace: PlanPace) -> None:
        self._pools = tuple(pools)
        self._pool_of = pool_of
        self._pace = pace
        self._models: dict[str, Model] = {}
        self._applications: dict[str, Application] = {}
        self._profiles: dict[str, Profile] = {}
        self._planned: dict[str, Planned] = {}
        self.plans: dict[str, Plan] = {}

    def model(self, name: str, model: Model | None) -> None:
        """Take a model that serves; None = it was removed."""
        _put(self._models, name, model)

    def application(self, name: str, application: Application | None) -> None:
        """Take an application; None = it was removed."""
        _put(self._applications, name, application)

    def profile(self, name: str, profile: Profile | None) -> None:
        """Take what a model's batches take."""
        _put(self._profiles, name, profile)

    def past(self, plan: Plan) -> None:
        """Take a plan that was made before a restart; one that is known changes nothing."""
        known = self.plans.get(plan.pool)
        if known is not None and known.time_us >= plan.time_us:
            return
        homes = {(place.model, number): place.host for place in plan.places for number in place.partitions}
        per_s: dict[str, float] = {}
        for place in plan.places:
            per_s[place.model] = per_s.get(place.model, 0.0) + place.per_s
        self._planned[plan.pool] = Planned(homes, plan.hosts, per_s, plan.time_us, plan.changed_us, plan.why)
        self.plans[plan.pool] = plan

    def plan(self, rates: Mapping[str, float], hosts: Mapping[str, Sequence[str]], now_us: int) -> list[Plan]:
        """Return the plans that are new.

        Args:
            rates: rows a second that each model was asked lately.
            hosts: instances that run, by pool; a pool without any is not planned.
            now_us: the time.
        """
        return [plan for pool in self._pools if (plan := self._of(pool, rates, hosts.get(pool.name, ()), now_us))]

    def works(self, pool: Pool, rates: Mapping[str, float]) -> list[Work]:
        """Return what the models of a pool are asked."""
        return [
            self._work(model, rates) for name, model in sorted(self._models.items()) if self._pool_of(name) == pool.name
        ]

    def _of(self, pool: Pool, rates: Mapping[str, float], hosts: Sequence[str], now_us: int) -> Plan | None:
        before, works = self._planned.get(pool.name), self.works(pool, rates)
        if not hosts or not works:
            return None
        pace = replace(self._pace, terms=self._pace.terms._replace(memory_bytes=pool.memory_bytes, least=pool.hosts))
        found = planned(before, works, sorted(hosts), now_us, pace)
        if found is before:
            return None
        self._planned[pool.name] = found
        plan = self.plans[pool.name] = written(pool.name, found, _from_us(before, found, works))
        return plan

    def _work(self, model: Model, rates: Mapping[str, float]) -> Work:
        profile = self._profiles.get(model.name)
        asking = [found for app in self._applications.values() for found in _objectives_us(app, model.name)]
        objective_us = min(asking, default=USUAL_OBJECTIVE_US)
        return Work(
            model.name,
            rates.get(model.name, 0.0),
            objective_us - min(HOPS_US, objective_us / _HOPS_PART),
            _times(profile),
            bytes=(profile.bytes if profile is not None else 0) or model.bytes,
            load_us=profile.load_us if profile is not None else 0,
            partitions=model.partitions,
        )


def _objectives_us(application: Application, model: str) -> Iterator[float]:
    """Yield the time that a model has to answer, for each way in which an application asks it."""
    stages = {stage.name: stage for stage in application.stages}
    for stage in application.stages:
        if model in ({stage.model} if stage.model else {*application.models}):
            begin = max((stages[name].share for name in needed(stage)), default=0.0)
            yield max(0.0, stage.share - begin) * application.slo_ms * 1e3
    if not stages and model in application.models:
        yield application.slo_ms * 1e3


def written(pool: str, found: Planned, from_us: int = 0) -> Plan:
    """Return a plan as it is published; hosts follow it from `from_us` on."""
    placement = found.placement
    assert placement is not None, "it has just been planned"
    places = tuple(
        _place(host, share, node.duty_us)
        for host, node in sorted(placement.nodes.items())
        for share in sorted(node.shares, key=lambda share: share.work.model)
    )
    return Plan(
        pool,
        found.at_us,
        found.changed_us,
        placement.needed,
        found.hosts,
        places,
        found.why,
        placement.reasons,
        from_us,
    )


def _from_us(before: Planned | None, found: Planned, works: Sequence[Work]) -> int:
    """Return when a plan is followed: at once, unless models move that are asked, and whose old hosts still run."""
    if before is None or not {*before.hosts} <= {*found.hosts}:
        return 0
    moving = {model for (model, number), host in found.homes.items() if before.homes.get((model, number), host) != host}
    loads_us = [work.load_us for work in works if work.model in moving and work.per_s]
    return found.at_us + READ_US + min(max(loads_us), MOST_LOADING_US) if loads_us else 0


def _place(host: str, share: Share, duty_us: float) -> Place:
    rows = share.rows(duty_us) if share.per_s else 1
    return Place(host, share.work.model, share.partitions, share.per_s, rows, int(duty_us) if share.per_s else 0)


def _times(profile: Profile | None) -> BatchTimes:
    if profile is None or not profile.sizes:
        return UNKNOWN
    return BatchTimes(profile.sizes, tuple(float(max(1, us)) for us in profile.p99_us))


def _put(known: dict[str, _T], name: str, value: _T | None) -> None:
    if value is None:
        known.pop(name, None)
    else:
        known[name] = value
