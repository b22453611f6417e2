"""Plans the hosts of pools on the control role's timer: reads what is published, and returns plans to be published.

    models, applications, profiles, plan ─▶ Planner ◀─ rates of the history, hosts of the live figures
                                               │ Plan
                                               ▼ topic `plan`, which comes back here

As candidates are, topics are followed outside any group. A plan that could not be written is made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model, Plan, Profile
from streams.control.carry.fairly import fairly
from streams.control.figures import is_silent
from streams.runtime.errors import BrokerUnavailableError, StoppedError
from streams.topology import host_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from schemas.codec import Codec
    from schemas.records import Place
    from streams.control.carry.promoting import Follow
    from streams.control.figures import Figures
    from streams.control.history import History
    from streams.operators.contract import Record
    from streams.planning.planner import Planner
    from streams.runtime.ports import Broadcast

_log = logging.getLogger(__name__)

# Over which rates are counted (us), as in Nexus.
COUNTED_US: Final = 10_000_000
_TOPICS: Final = (topics.MODELS, topics.APPLICATIONS, topics.PROFILES, topics.PLAN)
_POLLS: Final = 20  # of one tick, so that the page gets its turn
_STOP_S: Final = 2.0
_HOST: Final = host_role("")


class PlaceRow(TypedDict):
    """A model on a host, as the page shows it."""

    host: str
    model: str
    partitions: int
    per_s: float
    rows: int
    duty_ms: float


class PlanRow(TypedDict):
    """The plan of a pool, as the page shows it."""

    pool: str
    time_us: int
    changed_us: int
    needed: int
    hosts: int
    why: str
    reasons: list[str]
    places: list[PlaceRow]


class PoolDemand(NamedTuple):
    """What reports say: rows a second by model, and the hosts that live, by pool."""

    rates: dict[str, float]
    hosts: dict[str, list[str]]


class Planning:
    """Follows the planner's topics, and lets it plan.

    Args:
        follow: follows topics.
        codec: of the records.
        planner: decides; a new one after each loss of the log, so that it is asked for anew.
    """

    def __init__(self, follow: Follow, codec: Codec, planner: Callable[[], Planner]) -> None:
        self._follow = follow
        self._codec = codec
        self._new = planner
        self._planner = planner()
        self._log: Broadcast | None = None

    async def tick(self, asked: PoolDemand, now_us: int) -> list[Plan]:
        """Read what is new and return the plans to be written; while Kafka is away there are none."""
        try:
            if not await self._read():
                return []
        except (BrokerUnavailableError, StoppedError) as fault:
            _log.warning("hosts are not planned: %s", fault)
            await self.stop()
            return []
        plans = self._planner.plan(asked.rates, asked.hosts, now_us)
        for plan in plans:
            if plan.changed_us == plan.time_us:
                _log.info("pool %s is planned anew: %s; %s", plan.pool, plan.why, "; ".join(plan.reasons) or "no move")
        return plans

    async def stop(self) -> None:
        """Follow nothing any more; what has been folded is folded again."""
        if self._log is not None:
            await self._log.stop(_STOP_S)
        self._log = None

    def rows(self) -> list[PlanRow]:
        """Return the last plans, as the page shows them."""
        return [plan_row(plan) for _, plan in sorted(self._planner.plans.items())]

    async def _read(self) -> bool:
        """Take what was published; tell whether all that was there is known."""
        if self._log is None:
            self._planner = self._new()
            self._log = self._follow(_TOPICS, None)
            await self._log.start()
        for _ in range(_POLLS):
            polled = await self._log.poll(0 if self._log.caught_up else 200)
            async for record in fairly(polled):
                self._take(record)
            if not polled and self._log.caught_up:
                break
        return self._log.caught_up

    def _take(self, record: Record) -> None:
        name, value = (record.key or b"").decode("utf-8", "replace"), record.value
        try:
            match record.topic:
                case topics.MODELS if topics.MODEL_VERSION not in name:
                    self._planner.model(name, self._codec.decode(Model, value) if value else None)
                case topics.APPLICATIONS:
                    self._planner.application(name, self._codec.decode(Application, value) if value else None)
                case topics.PROFILES:
                    self._planner.profile(name, self._codec.decode(Profile, value) if value else None)
                case topics.PLAN if value:
                    self._planner.past(self._codec.decode(Plan, value))
        except DecodeError as error:
            _log.warning("skipped a record of %s: %s", record.topic, error)


def asked(live: Iterable[Figures], history: History, now_us: int) -> PoolDemand:
    """Return what reports say.

    A model is asked as often as applications say, or as hosts have read, whichever is more: hosts that cannot keep up
    read less than is asked, and who asks a model's topic directly is no application.
    """
    seconds, risen = history.since(COUNTED_US, now_us)
    rates: dict[str, float] = {}
    for key, value in risen.items():
        if key.name == "asked_total" and key.application and key.model:
            rates[key.model] = rates.get(key.model, 0.0) + value / seconds
    for key, value in risen.items():
        if key.name == "host_asked_total" and key.model:
            rates[key.model] = max(rates.get(key.model, 0.0), value / seconds)
    hosts: dict[str, list[str]] = {}
    for entry in live:
        if entry["role"].startswith(_HOST) and not is_silent(entry, now_us):
            hosts.setdefault(entry["role"].removeprefix(_HOST), []).append(entry["instance"])
    return PoolDemand(rates, hosts)


def plan_row(plan: Plan) -> PlanRow:
    """Return a plan as the page shows it."""
    return PlanRow(
        pool=plan.pool,
        time_us=plan.time_us,
        changed_us=plan.changed_us,
        needed=plan.needed,
        hosts=len(plan.hosts),
        why=plan.why,
        reasons=list(plan.reasons),
        places=[_place_row(place) for place in plan.places],
    )


def _place_row(place: Place) -> PlaceRow:
    return PlaceRow(
        host=place.host,
        model=place.model,
        partitions=len(place.partitions),
        per_s=round(place.per_s, 1),
        rows=place.rows,
        duty_ms=round(place.duty_us / 1e3, 1),
    )
