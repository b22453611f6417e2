"""The control role plans hosts: what it reads, what reports tell it, and what the page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.packing.epochs import PlanPace
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Model, Plan, Profile, Report
from streams.control.carry.planning import Planning, PoolDemand, asked
from streams.control.figures import fold
from streams.control.history import History
from streams.operators.contract import Record
from streams.planning.planner import Planner, Pool
from streams.runtime.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

CODEC = Codec()
S = 1_000_000
ASKED = PoolDemand({"svc": 40.0}, {"small": ["host.small"]})


class Log:
    """Follows records in memory; implements `ports.Broadcast`."""

    def __init__(self, *records: tuple[str, str, object | None]) -> None:
        self.records = [
            Record(topic, 0, offset, 0, key.encode(), None if value is None else CODEC.encode(value))
            for offset, (topic, key, value) in enumerate(records)
        ]
        self.is_away = False
        self._next = 0

    def follow(self, names: Sequence[str], since_us: int | None) -> Log:
        """Begin anew."""
        assert since_us is None
        assert {record.topic for record in self.records} <= {*names}
        self._next = 0
        return self

    async def start(self) -> None:
        """Connect."""
        if self.is_away:
            raise BrokerUnavailableError("away")

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what is new."""
        begin, self._next = self._next, len(self.records)
        return self.records[begin:]

    @property
    def caught_up(self) -> bool:
        """Whether everything was returned."""
        return self._next == len(self.records)

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""


def _published() -> Log:
    model = Model("svc", "1", "linear", "", "", "label", "float32", (4,), partitions=1)
    return Log(
        (topics.MODELS, "svc", model),
        (topics.MODELS, "svc@1", model),
        (topics.APPLICATIONS, "digits", Application("digits", ("svc",))),
        (topics.PROFILES, "svc", Profile("svc", "1", (1, 8), (2_000, 5_000), 10_000, 1 << 20)),
    )


def _planning(log: Log) -> Planning:
    return Planning(log.follow, CODEC, lambda: Planner([Pool("small", 1 << 29)], lambda _: "small", PlanPace()))


async def test_what_is_published_is_planned_and_shown() -> None:
    """One model on one host, with its batch and how often; the page has the same."""
    planning = _planning(_published())
    (plan,) = await planning.tick(ASKED, S)
    (place,) = plan.places
    assert (place.host, place.model, place.partitions) == ("host.small", "svc", (0,))
    assert place.per_s == 40.0 * PlanPace().headroom
    (row,) = planning.rows()
    assert (row["pool"], row["needed"], row["hosts"]) == ("small", 1, 1)
    assert row["places"][0]["duty_ms"] == round(place.duty_us / 1e3, 1)
    assert await planning.tick(ASKED, 2 * S) == []


async def test_a_plan_of_before_a_restart_stands() -> None:
    """It comes back from its topic; a record that is no plan is skipped."""
    log = _published()
    (plan,) = await _planning(log).tick(ASKED, S)
    again = _published()
    again.records += [
        Record(topics.PLAN, 0, 0, 0, b"small", CODEC.encode(plan)),
        Record(topics.PLAN, 0, 1, 0, b"small", b"nonsense"),
    ]
    restarted = _planning(again)
    assert await restarted.tick(ASKED, 5 * S) == []
    assert restarted.rows()[0]["time_us"] == S
    assert CODEC.decode(Plan, CODEC.encode(plan)) == plan


async def test_while_kafka_is_away_nothing_is_planned() -> None:
    """Afterwards everything is read again."""
    log = _published()
    log.is_away = True
    planning = _planning(log)
    assert await planning.tick(ASKED, S) == []
    log.is_away = False
    assert len(await planning.tick(ASKED, 2 * S)) == 1


def test_reports_tell_rates_and_hosts() -> None:
    """Rates are of all applications together; a host that has fallen silent is none."""
    history, live = History(), []
    for role, instance, time_us in (
        ("selection", "selection", 10 * S),
        ("host.small", "host.small", 10 * S),
        ("host.small", "host.small@2", 1 * S),
    ):
        counters = {"asked_total{application=x,model=svc}": 100.0, "asked_total{application=y,model=svc}": 50.0}
        first = fold(None, Report(instance, role, time_us - S, dict.fromkeys(counters, 0.0), {}))
        second = fold(first, Report(instance, role, time_us, counters if role == "selection" else {}, {}))
        history.add(None, first, 5 * S)
        history.add(first, second, 10 * S)
        live.append(second)
    found = asked(live, history, 10 * S)
    assert found.hosts == {"small": ["host.small"]}
    assert found.rates == {"svc": 150 / 5}


def test_a_model_is_asked_as_often_as_hosts_have_read_where_that_is_more() -> None:
    """Two hosts read a model whose topic is asked directly, and less of another one than applications ask."""
    history = History()
    counters = {
        "selection": {"asked_total{application=x,model=svc}": 100.0},
        "host.small": {"host_asked_total{model=svc}": 50.0, "host_asked_total{model=direct}": 30.0},
        "host.small@2": {"host_asked_total{model=direct}": 20.0},
    }
    for role, counts in counters.items():
        first = fold(None, Report(role, role, 9 * S, dict.fromkeys(counts, 0.0), {}))
        history.add(None, first, 5 * S)
        history.add(first, fold(first, Report(role, role, 10 * S, counts, {})), 10 * S)
    assert asked([], history, 10 * S).rates == {"svc": 100 / 5, "direct": 50 / 5}
