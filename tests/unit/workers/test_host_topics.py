"""A host, its profiles and its plan in virtual time: what outlasts a restart, and what is loaded without a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from schemas import topics
from schemas.records import Model, ModelPredictions, Outcome, Place, Plan, Profile
from streams.operators.contract import Emit, LogMessage, Record
from streams.testing import Crash, Driver
from streams.topology import build, host_role
from tests.loops import CODEC, row, served
from tests.samples import model_query
from workers.kernel.host.kernel import Host
from workers.kernel.host.profiles import FIRST_US, WRITTEN_US, ProfileLog
from workers.kernel.schedule.fifo import Fifo
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.residency import Residency
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.operators.contract import Effects, Load
    from streams.testing import Fault

MIB = 1 << 20
ROLE = host_role("small")
NAMES = "abc"
LOAD_US = 10_000


class Bench:
    """A host of models that take a MiB each, 10 ms to load, and 0.9 ms a batch and 0.1 ms a row."""

    def __init__(self, budget: int = 2, faults: Iterable[Fault] = ()) -> None:
        self.profiles: list[Profiles] = []  # of one host after the other

        def host() -> Host:
            self.profiles.append(Profiles())
            settings = WorkerSettings(1)
            schedule = Fifo(self.profiles[-1])
            return Host(CODEC, "one", settings, lambda _: True, schedule, Residency(budget * MIB), pool="small")

        services = {name: served(lambda _: 1, 900, 100, load=_load) for name in NAMES}
        topology = build(NAMES, 1, dict.fromkeys(NAMES, 1), hosts={"small": NAMES})
        self.driver = Driver(topology, {ROLE: host}, faults, services)
        self.driver.run(0.001)

    def serve(self, name: str, version: str = "1") -> None:
        """Let a version of a model serve."""
        model = Model(name, version, "function", "", f"of {version}", "label", "float32", (1,), partitions=1, bytes=MIB)
        for key in (topics.model_version(name, version), name):
            self.driver.produce(topics.MODELS, 0, CODEC.encode(model), key.encode())

    def ask(self, name: str, count: int = 1) -> None:
        """Ask a model so many rows, all at the same time."""
        for number in range(count):
            query = model_query(f"{name}{self.driver.now_us}-{number}", 0, self.driver.now_us + 1_000_000, row())
            self.driver.produce(topics.model_queries(name), 0, CODEC.encode(query))

    def plan(self, from_us: int = 0, **hosts: str) -> None:
        """Publish a plan that gives each host the models of one letter."""
        places = [Place(host, model, (0,), 5.0, 1, 1) for host, models in hosts.items() for model in models]
        plan = Plan("small", 1, 1, 1, tuple(hosts), tuple(places), "a test", from_us=from_us)
        self.driver.produce(topics.PLAN, 0, CODEC.encode(plan), b"small")

    def written(self) -> list[Profile]:
        """Return the profiles that were written."""
        return [CODEC.decode(Profile, record.value) for record in self.driver.read(topics.PROFILES)]

    def resident(self) -> set[str]:
        """Return the models in memory."""
        host = self.driver.operator(ROLE)
        assert isinstance(host, Host)
        shown = [name for name in host.statistics() if name.startswith("resident{")]
        return {name.partition("model=")[2].partition(",")[0] for name in shown}

    def outcomes(self) -> set[Outcome]:
        """Return what became of queries."""
        batches = [
            CODEC.decode(ModelPredictions, record.value) for record in self.driver.read(topics.MODEL_PREDICTIONS)
        ]
        return {outcome for batch in batches for outcome in batch.outcomes}


def _load(_load: Load) -> tuple[str | None, int]:
    return None, LOAD_US


def test_estimates_survive_a_restart_of_the_host() -> None:
    """What batches of four took is known before any has run again."""
    bench = Bench(faults=[Crash(at_us=30_000_000, role=ROLE)])
    bench.serve("a")
    bench.ask("a")
    bench.driver.run(2)
    bench.ask("a", 4)
    bench.driver.run(30)
    first, profile = bench.written()
    assert first.sizes == (1,)
    assert (profile.model, profile.version, profile.load_us, profile.bytes) == ("a", "1", LOAD_US, MIB)
    bench.ask("a")
    bench.driver.run(1)
    before, after = bench.profiles
    assert before.kept("a").sizes[-1] > 1
    assert after.kept("a").sizes == before.kept("a").sizes
    assert bench.outcomes() == {Outcome.OK}


def test_times_of_a_version_that_serves_no_more_do_not_count() -> None:
    """Neither in the host that measured them, nor in the one after it."""
    bench = Bench(faults=[Crash(at_us=30_000_000, role=ROLE)])
    bench.driver.produce(topics.PROFILES, 0, CODEC.encode(Profile("a", "1", (1, 64), (5, 5), 7, MIB)), b"a")
    bench.serve("a", "2")
    bench.ask("a")
    bench.driver.run(31)
    profile = next(profile for profile in bench.written() if profile.version == "2")
    assert (profile.sizes, profile.load_us) == ((1,), LOAD_US)
    bench.serve("a", "3")
    bench.driver.run(1)
    bench.ask("a")
    bench.driver.run(20)
    assert bench.profiles[-1].kept("a").version == "3"
    assert bench.written()[-1].version == "3"


def test_what_the_next_plan_gives_to_a_host_is_loaded_before_it_is_read_there() -> None:
    """It is in memory when the plan is followed, in the place of one that was there as long as there was room."""
    bench = Bench()
    for name in NAMES:
        bench.serve(name)
    bench.plan(two=NAMES)
    bench.driver.run(1)
    assert bench.resident() == {"a", "b"}
    bench.plan(bench.driver.now_us + 2_000_000, one="c", two="ab")
    host = bench.driver.operator(ROLE)
    before = host.needs().group.spread
    bench.driver.run(1)
    assert bench.resident() == {"a", "c"}
    assert host.needs().group.spread is before
    bench.driver.run(1)
    assert host.needs().group.spread is not before


def test_what_a_plan_takes_away_from_a_host_makes_room_first() -> None:
    """Even if it was asked last."""
    bench = Bench(budget=2)
    for name in NAMES:
        bench.serve(name)
    bench.plan(one=NAMES)
    for name in "ab":
        bench.driver.run(1)
        bench.ask(name)
    bench.driver.run(1)
    bench.plan(one="ac", two="b")
    bench.driver.run(1)
    bench.ask("c")
    bench.driver.run(1)
    assert bench.resident() == {"a", "c"}


def test_a_profile_is_written_seldom_and_only_if_it_has_changed() -> None:
    """The first one soon, then one in ten seconds, and none that differs by a tenth or less."""
    log, profiles = _log()
    profiles.observe("a", 1, 1_000)
    log.measured("a", 0)
    assert log.due_us == FIRST_US
    assert [profile.p99_us for profile in _written(log.write(FIRST_US))] == [(1_000,)]
    assert log.due_us is None
    profiles.observe("a", 1, 5_000)
    log.measured("a", FIRST_US + 1)
    assert log.due_us == FIRST_US + WRITTEN_US
    assert log.write(WRITTEN_US) == []
    assert [profile.p99_us for profile in _written(log.write(FIRST_US + WRITTEN_US))] == [(5_000,)]
    profiles.observe("a", 1, 5_500)
    log.measured("a", 100 * WRITTEN_US)
    assert log.write(101 * WRITTEN_US) == []


def test_at_a_stop_all_that_has_changed_is_written() -> None:
    """However lately it was written last."""
    log, profiles = _log()
    profiles.observe("a", 1, 1_000)
    log.measured("a", 0)
    log.write(FIRST_US)
    profiles.observe("a", 1, 1_101)
    log.measured("a", FIRST_US)
    assert [profile.p99_us for profile in _written(log.write_all(FIRST_US))] == [(1_101,)]
    assert log.write_all(FIRST_US) == []


@pytest.mark.parametrize(
    "value",
    [
        b"nonsense",
        CODEC.encode(Profile("b", "1", (1,), (1,))),
        CODEC.encode(Profile("a", "1", (1, 2), (1,))),
        CODEC.encode(Profile("a", "1", (0,), (1,))),
        CODEC.encode(Profile("a", "1", (1,), (-1,))),
    ],
    ids=["nonsense", "of another model", "of two lengths", "of no rows", "of less than no time"],
)
def test_a_record_that_is_no_profile_is_skipped(value: bytes) -> None:
    """The log says so, and estimates are as if it were not there."""
    log, profiles = _log()
    (said,) = log.on_record(Record(topics.PROFILES, 0, 0, 0, b"a", value))
    assert isinstance(said, LogMessage)
    log.restore("a", "1")
    assert not profiles.of("a").is_known


class _Known(NamedTuple):
    log: ProfileLog
    profiles: Profiles


def _log() -> _Known:
    profiles = Profiles()
    profiles.switched("a", "1")
    return _Known(ProfileLog(CODEC, profiles), profiles)


def _written(effects: Effects) -> list[Profile]:
    return [CODEC.decode(Profile, effect.value) for effect in effects if isinstance(effect, Emit)]
