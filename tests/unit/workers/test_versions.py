"""A worker changes the version of its model under load: what is wanted takes over between two batches, or never."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import draw
from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, ModelQueries, Outcome, Report, Tensor
from streams.operators.contract import Predicted, Record
from streams.runtime.errors import BrokerUnavailableError
from streams.testing.broker import FakeBroker
from tests.fakes import FakeBroadcast, FakeConsumer, FakeRecent, fake_ports
from tests.samples import model_query
from tests.virtual import VirtualClock, elapse, in_virtual_time
from workers.errors import HungError, PackageError
from workers.executors.thread import Timed
from workers.runner import worker
from workers.settings import DRAIN_US, WARM_UP_ROWS, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Any

    from schemas.records import Input

CODEC = Codec()
TOPIC = topics.model_queries("digits")
SLACK_US = 2_000_000  # shorter than loading takes; the fake consumer polls twice a second
LOADED_S = 4.0  # a version that is wanted runs by then
CANARY = {"2": 0.3}


def version(name: str, shares: Mapping[str, float] | None = None, **more: Any) -> Model:
    """Make a version of the model, with others beside it; more fields of the record may be given."""
    folder, digest = f"/nowhere/{name}", f"digest {name}"
    return Model("digits", name, "function", folder, digest, "label", "float32", (1,), shares=shares or {}, **more)


class Answering:
    """Answers its version's number to every row after 5 ms; loading takes 3 s.

    Attributes:
        took_s: how long a batch takes.
        hung: raised instead of an answer.
        is_instant: whether it answers at once, in the caller's turn.
        began_us: when each other batch began.
    """

    def __init__(self, model: Model, fault: Exception | None, outcome: Outcome) -> None:
        self.number = int(model.version)
        self.took_s = 0.005
        self.hung: Exception | None = None
        self.is_instant = False
        self.began_us: list[int] = []
        self.ready = False
        self.batches = 0
        self.first_rows = 0
        self.stopped = False
        self._fault = fault
        self._outcome = outcome

    async def start(self) -> None:
        """Take a while, or fail."""
        await elapse(3)
        if self._fault is not None:
            raise self._fault
        self.ready = True

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Leave it to `run`, if it takes any time."""
        return self.is_instant

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Answer at once, or leave it to `run`."""
        return Timed(self._answers(len(inputs)), 100) if self.is_instant else None

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict."""
        assert not self.stopped
        self.batches += 1
        self.began_us.append(VirtualClock().now_us())
        self.first_rows = self.first_rows or len(inputs)
        await elapse(self.took_s)
        if self.hung is not None:
            raise self.hung
        return Timed(self._answers(len(inputs)), round(self.took_s * 1e6))

    async def stop(self) -> None:
        """Remember."""
        self.stopped = True

    def _answers(self, rows: int) -> Predicted:
        return Predicted((self._outcome,) * rows, np.full(rows, self.number))


class Scene:
    """A worker of version 1 that is asked every 10 ms, and a topic `models` that it follows."""

    def __init__(
        self,
        settings: WorkerSettings | None = None,
        recent: FakeRecent | None = None,
        starts: str = "1",
        faults: Mapping[str, Exception] | None = None,
        starting: Model | None = None,
    ) -> None:
        self.broker = FakeBroker()
        self.consumer = FakeConsumer(self.broker, [(TOPIC, 0)])
        self.made: dict[str, list[Answering]] = {}
        self.order: list[str] = []  # in which versions were loaded
        self.faults: dict[str, Exception] = dict(faults or {})
        self.outcomes: dict[str, Outcome] = {}
        self.asked = 0
        self.history: list[tuple[bytes, bytes]] = []  # keys and values in `models` before the worker starts
        models = FakeBroadcast(self.broker, (topics.MODELS,))
        ports = fake_ports(self.broker, self.consumer, encode=CODEC.encode, broadcast=models, recent=recent)
        self.quiet = False  # whether nothing is asked before the block of `playing`
        self.worker = worker(
            starting or version(starts), "worker-1", settings or WorkerSettings(), ports, CODEC, make=self.make
        )

    def make(self, model: Model) -> Answering:
        """Make what runs a version."""
        outcome = self.outcomes.get(model.version, Outcome.OK)
        self.order.append(model.version)
        made = Answering(model, self.faults.get(model.version), outcome)
        self.made.setdefault(model.version, []).append(made)
        return made

    def want(self, name: str, shares: Mapping[str, float] | None = None, **more: Any) -> None:
        """Say which version is to serve, and which beside it; more fields of the record may be given."""
        model = version(name, shares, **more)
        for beside in {**model.shares, **dict.fromkeys((*model.standby, *model.labels.values()))}:
            self.broker.put(topics.MODELS, 0, CODEC.encode(version(beside)), key=f"digits@{beside}".encode())
        self.broker.put(topics.MODELS, 0, CODEC.encode(model), key=b"digits")

    async def load(self, name: str, shares: Mapping[str, float] | None = None, seconds: float = LOADED_S) -> None:
        """Say what is to serve, and ask until it does."""
        self.want(name, shares)
        await self.ask(seconds)

    async def ask(self, seconds: float, version: str = "") -> list[str]:
        """Ask every 10 ms for a while; returns the queries' ids."""
        first = self.asked
        for _ in range(round(seconds * 100)):
            self.put(1, version)
            await elapse(0.01)
        return [f"q{number}" for number in range(first, self.asked)]

    def put(self, count: int, version: str = "") -> list[str]:
        """Ask so many queries at once; returns their ids."""
        row, first = Tensor.of(np.array([0], dtype=np.float32)), self.asked
        for _ in range(count):
            query = model_query(f"q{self.asked}", 0, VirtualClock().now_us() + SLACK_US, row)
            self.broker.put(TOPIC, 0, CODEC.encode(query._replace(version=version)))
            self.asked += 1
        return [f"q{number}" for number in range(first, self.asked)]

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[Scene]:
        """Run the worker for the time of a block, which begins after a second of load."""
        for key, value in self.history:
            self.broker.put(topics.MODELS, 0, value, key=key)
        stop = asyncio.Event()
        running = asyncio.create_task(self.worker.run(stop))
        await self.worker.ready.wait()
        await self.ask(0 if self.quiet else 1)
        yield self
        await elapse(3)
        stop.set()
        await running

    def batches(self, topic: str = topics.MODEL_PREDICTIONS) -> list[ModelPredictions]:
        """Return what was answered, in order."""
        return [CODEC.decode(ModelPredictions, value) for value in self.broker.values(topic)]

    def served(self) -> list[str]:
        """Return the versions in whose name was answered, in order, each change once; none lies, misses or expires."""
        names: list[str] = []
        seen = 0
        for batch in self.batches():
            assert isinstance(batch.answers, Tensor)
            assert set(batch.answers.numpy().tolist()) == {int(batch.version)}
            assert set(batch.outcomes) == {Outcome.OK}
            assert max(batch.waited_us) < SLACK_US
            seen += len(batch.query_ids)
            if names[-1:] != [batch.version]:
                names.append(batch.version)
        assert seen == self.asked
        return names

    def answered_by(self, since: int = 0) -> dict[str, str]:
        """Return the version that answered each query, or the outcome if none did; every query is answered once."""
        found: dict[str, str] = {}
        for batch in self.batches():
            for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True):
                assert query_id not in found
                found[query_id] = batch.version if outcome is Outcome.OK else outcome.value
        assert len(found) == self.asked
        return {query_id: name for query_id, name in found.items() if int(query_id[1:]) >= since}

    def last_report(self) -> Report:
        """Return the worker's last report."""
        return CODEC.decode(Report, self.broker.values(topics.REPORTS)[-1])


def asked_long_ago(number: int) -> ModelQueries:
    """Make a model query whose time is over."""
    return model_query(f"old{number}", 0, 0, Tensor.of(np.array([0], dtype=np.float32)))


def play(*steps: str) -> Scene:
    """Run a worker through steps: a version that is wanted, then 6 s of load; returns the scene afterwards."""
    return played(Scene(), *steps)


@in_virtual_time
async def played(scene: Scene, *steps: str) -> Scene:
    """Run a scene's worker through steps."""
    async with scene.playing():
        for name in steps:
            await scene.load(name, seconds=6)
    return scene


def test_a_version_takes_over_and_is_taken_back_without_a_query_lost_or_late() -> None:
    """There and back under load: every answer carries the version that gave it, and none has waited for a load."""
    scene = play("2", "1")
    assert scene.served() == ["1", "2", "1"]
    assert [made.stopped for made in scene.made["2"]] == [True]


ONE_BY_ONE = {"controller": "fixed", "parameters": {"rows": 1.0}}


@pytest.mark.parametrize("later_s", [0.0, 0.005, 0.01, 0.015, 0.02])
@in_virtual_time
async def test_what_had_been_read_when_the_next_version_was_ready_is_answered_by_the_old_one(later_s: float) -> None:
    """Of queries that are read together none is the new version's if the old one has answered any."""
    scene = Scene(WorkerSettings(**ONE_BY_ONE))
    bursts = []
    async with scene.playing():
        scene.want("2")
        await elapse(later_s)
        for _ in range(160):
            bursts.append(scene.put(4))
            await elapse(0.025)
    answered = scene.answered_by()
    versions = [{answered[query_id] for query_id in burst} for burst in bursts]
    assert [names for names in versions if len(names) > 1] == []
    assert (versions[0], versions[-1]) == ({"1"}, {"2"})


@pytest.mark.parametrize("drain_us", [0, DRAIN_US, 500_000])
@in_virtual_time
async def test_a_version_that_is_too_slow_leaves_its_queue_to_the_next_one(drain_us: int) -> None:
    """It goes on for as long as it may, and what it has not done by then is done in time."""
    scene = Scene(WorkerSettings(**ONE_BY_ONE, drain_us=drain_us))
    async with scene.playing():
        scene.made["1"][0].took_s = 0.1
        scene.want("2")
        await elapse(LOADED_S - 1.5)
        waiting = scene.put(19)
        await elapse(3)
    versions = [scene.answered_by()[query_id] for query_id in waiting]
    assert versions == sorted(versions)
    assert set(versions) == {"1", "2"}
    tried_us, first_us, *_ = scene.made["2"][0].began_us
    assert (
        drain_us <= first_us - tried_us < drain_us + 2 * 100_000
    )  # from when it was tried; a batch is under way then and at last


@pytest.mark.parametrize(("linger_ms", "by"), [(400.0, "1"), (1_000.0, "2")])
@in_virtual_time
async def test_a_version_takes_over_when_the_last_rows_were_kept_waiting(linger_ms: float, by: str) -> None:
    """Nothing else comes, and the bell that told of the version has rung while they waited: 0.1 s more at most."""
    scene = Scene(WorkerSettings(controller="fixed", parameters={"rows": 50.0, "linger_ms": linger_ms}))
    async with scene.playing():
        scene.made["1"][0].is_instant = True
        scene.want("2")
        await elapse(2.8)
        (last,) = scene.put(1)  # is read after 3.0 s and waits for so long; the version is ready after 3.305
        await elapse(3)
    assert scene.answered_by()[last] == by
    assert scene.last_report().counters["version_switches_total{model=digits}"] == 1


def test_a_version_that_cannot_be_loaded_changes_nothing_and_is_tried_again() -> None:
    """The present one goes on; the report says that the other failed."""
    scene = Scene()
    scene.faults["2"] = PackageError("a file is not the one that was packaged")
    assert played(scene, "2", "2", "2").served() == ["1"]
    assert len(scene.made["2"]) > 1
    assert scene.last_report().counters["version_failures_total{model=digits}"] >= 1


def test_whatever_a_version_raises_when_it_is_loaded_changes_nothing() -> None:
    """Its package may be damaged in ways that nobody has thought of."""
    scene = Scene()
    scene.faults["2"] = RecursionError("too deep")
    assert played(scene, "2").served() == ["1"]


@in_virtual_time
async def test_a_worker_whose_version_cannot_be_loaded_at_its_start_takes_the_last_one_that_can_be() -> None:
    """Version 3 is wanted, and 2 is damaged too: 1 answers, until the package of 3 has been mended."""
    scene = Scene(starts="3", faults={"2": PackageError("damaged"), "3": ValueError("damaged")})
    scene.history = [(f"digits@{name}".encode(), CODEC.encode(version(name))) for name in "123"]
    scene.history.append((b"digits", CODEC.encode(version("3"))))
    async with scene.playing():
        early = scene.asked
        await scene.ask(20)
        middle = scene.asked
        del scene.faults["3"]
        await scene.ask(30)
    by = scene.answered_by()
    assert [by[f"q{number}"] for number in (0, early, middle - 1, scene.asked - 1)] == ["failed", "failed", "1", "3"]


@in_virtual_time
async def test_a_worker_that_cannot_load_its_version_serves_another_one_before_it_tries_again() -> None:
    """Trying may take long, or end the worker: whoever asks has an answer of the version before meanwhile."""
    scene = Scene(starts="2", faults={"2": PackageError("it ended the worker")})
    scene.history = [(f"digits@{name}".encode(), CODEC.encode(version(name))) for name in "12"]
    scene.history.append((b"digits", CODEC.encode(version("2"))))
    async with scene.playing():
        await scene.ask(20)
    assert scene.order[:3] == ["2", "1", "2"]


@in_virtual_time
@pytest.mark.parametrize(
    ("written", "shares", "by"),
    [
        ("123", {}, "1"),  # 3 was gone back from
        ("3123", {}, "1"),  # and was first added long ago
        ("142", {"4": 0.0}, "1"),  # 4 is a shadow
        ("24", {}, "failed"),
    ],
)
async def test_a_version_that_was_gone_back_from_is_not_fallen_back_on(
    written: str, shares: Mapping[str, float], by: str
) -> None:
    """Version 2 is to serve and cannot be loaded: only what was added before it, and does not run beside it, may."""
    scene = Scene(starts="2", faults={"2": PackageError("damaged")})
    scene.history = [(f"digits@{name}".encode(), CODEC.encode(version(name))) for name in written]
    scene.history.append((b"digits", CODEC.encode(version("2", shares))))
    async with scene.playing():
        await scene.ask(20)
    assert list(scene.answered_by().values())[-1] == by


def test_a_version_that_answers_none_of_the_last_rows_does_not_take_over() -> None:
    """Real rows are replayed before it joins; one that fails on all of them is no improvement."""
    scene = Scene()
    scene.outcomes["2"] = Outcome.FAILED
    assert played(scene, "2").served() == ["1"]
    assert scene.made["2"][0].batches == 1


@in_virtual_time
async def test_a_version_is_tried_on_the_last_rows_of_several_batches() -> None:
    """However small the batches are, as many rows as the last that were asked stand for them all."""
    async with Scene().playing() as scene:
        for _ in range(WARM_UP_ROWS):
            await scene.ask(0.02)
            await elapse(0.6)
        await scene.load("2", seconds=LOADED_S + 1)
    assert scene.made["2"][0].first_rows == WARM_UP_ROWS
    assert max(len(batch.query_ids) for batch in scene.batches() if batch.version == "1") < WARM_UP_ROWS


def test_just_after_a_start_a_version_is_warmed_up_by_the_last_queries_of_its_topic() -> None:
    """The worker has answered few rows by then: what was asked before it started stands for them."""
    recent = FakeRecent([Record(TOPIC, 0, n, 0, None, CODEC.encode(asked_long_ago(n))) for n in range(100)])
    scene = Scene(recent=recent)
    scene.history = [(b"digits", CODEC.encode(version("2")))]
    assert played(scene, "2").served() == ["1", "2"]
    assert recent.reads == [(TOPIC, WARM_UP_ROWS)]
    assert scene.made["2"][0].first_rows == WARM_UP_ROWS


WIDER = replace(version("2"), shape=(2,))


def of_another_shape(scene: Scene) -> Scene:
    """Have version 2 take two numbers, where the queries are of one; the worker has answered next to nothing."""
    scene.history = [(f"digits@{model.version}".encode(), CODEC.encode(model)) for model in (version("1"), WIDER)]
    return scene


@in_virtual_time
async def test_a_version_that_takes_nothing_of_what_was_asked_does_not_take_over_in_a_quiet_minute() -> None:
    """Only the topic tells what is asked; it is refused every time that it is tried."""
    recent = FakeRecent([Record(TOPIC, 0, n, 0, None, CODEC.encode(asked_long_ago(n))) for n in range(3)])
    scene = of_another_shape(Scene(recent=recent))
    scene.quiet = True
    async with scene.playing():
        scene.broker.put(topics.MODELS, 0, CODEC.encode(WIDER), key=b"digits")
        await elapse(40)
        await scene.ask(1)
    assert scene.served() == ["1"]
    report = scene.last_report()
    assert report.gauges["version_failing{model=digits,version=2}"] == 1
    assert report.counters["version_failures_total{model=digits}"] > 1


@in_virtual_time
async def test_a_worker_that_starts_with_a_version_that_takes_nothing_falls_back_on_the_one_before() -> None:
    """Until somebody asks what it takes."""
    recent = FakeRecent([Record(TOPIC, 0, n, 0, None, CODEC.encode(asked_long_ago(n))) for n in range(3)])
    scene = of_another_shape(Scene(recent=recent, starting=WIDER))
    scene.history.append((b"digits", CODEC.encode(WIDER)))
    scene.quiet = True
    async with scene.playing():
        await elapse(20)
        await scene.ask(1)
    assert scene.served() == ["1"]
    assert scene.last_report().gauges["version_failing{model=digits,version=2}"] == 1


def test_a_version_takes_over_where_the_last_queries_cannot_be_read() -> None:
    """It is held to the rows that the worker has answered itself, alone."""
    scene = Scene(recent=FakeRecent(fault=BrokerUnavailableError("away")))
    scene.history = [(b"digits", CODEC.encode(version("2")))]
    assert played(scene, "2").served() == ["1", "2"]
    assert 0 < scene.made["2"][0].first_rows < WARM_UP_ROWS
    assert scene.last_report().counters["version_failures_total{model=digits}"] == 0


@in_virtual_time
async def test_a_canary_is_warmed_up_by_the_last_queries_of_its_topic() -> None:
    """As a version that is to serve."""
    scene = Scene(recent=FakeRecent([Record(TOPIC, 0, 0, 0, None, CODEC.encode(asked_long_ago(0)))]))
    scene.history = [(b"digits@2", CODEC.encode(version("2"))), (b"digits", CODEC.encode(version("1", CANARY)))]
    async with scene.playing():
        await scene.ask(LOADED_S + 1)
    assert scene.made["2"][0].first_rows == 1
    assert set(scene.answered_by().values()) == {"1", "2"}


def test_a_version_that_fails_is_given_up_when_another_is_wanted() -> None:
    """The next version is loaded at once, not after the other's turn."""
    scene = Scene()
    scene.faults["2"] = PackageError("damaged")
    assert played(scene, "2", "3").served() == ["1", "3"]


def test_the_history_of_wanted_versions_is_not_relived_at_a_start() -> None:
    """The topic is read from its beginning; only what it says last is loaded."""
    scene = Scene()
    scene.history = [(b"digits", CODEC.encode(version(name))) for name in ("3", "2", "1")]
    assert played(scene).served() == ["1"]
    assert list(scene.made) == ["1"]


def test_the_report_says_which_version_serves() -> None:
    """A gauge carries the version as its label, and switches are counted."""
    report = play("2").last_report()
    assert report.gauges["serving{model=digits,version=2}"] == 1
    assert report.counters["version_switches_total{model=digits}"] == 1


def test_a_removal_and_another_model_change_nothing() -> None:
    """A null value, garbage and a version key leave the present version in place."""
    scene = Scene()
    two = CODEC.encode(version("2"))
    scene.history = [(b"digits@2", two), (b"others", two), (b"digits", b"garbage")]
    assert played(scene).served() == ["1"]
    assert list(scene.made) == ["1"]


@in_virtual_time
async def test_a_canary_answers_the_queries_that_are_drawn_for_it_until_it_ends() -> None:
    """Which those are follows from their ids; nothing is lost, late, or under another's name."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        during = await scene.ask(3)
        scene.want("1")
        await scene.ask(3)
    assert set(scene.served()) == {"1", "2"}
    answered = scene.answered_by()
    assert [answered[q] for q in during] == [draw.version(q, CANARY) or "1" for q in during]
    assert 50 < [answered[q] for q in during].count("2") < 130
    assert set(scene.answered_by(since=scene.asked - 100).values()) == {"1"}
    assert [made.stopped for made in scene.made["2"]] == [True]


@in_virtual_time
async def test_several_canaries_and_shadows_run_side_by_side() -> None:
    """Each canary answers its share, each shadow sees every query; one that ends leaves the others as they were."""
    scene = Scene()
    shares = {"2": 0.3, "3": 0.2, "4": 0.0, "5": 0.0}
    async with scene.playing():
        await scene.load("1", shares, seconds=LOADED_S * 4)
        during = await scene.ask(3)
        scene.want("1", {"3": 0.2, "5": 0.0})
        await scene.ask(3)
    answered = scene.answered_by()
    assert [answered[q] for q in during] == [draw.version(q, shares) or "1" for q in during]
    assert set(scene.answered_by(since=scene.asked - 100).values()) == {"1", "3"}
    shadowed = [(batch.version, q) for batch in scene.batches(topics.SHADOWS) for q in batch.query_ids]
    assert set(shadowed) >= {(v, q) for v in ("4", "5") for q in during}
    assert {v: len(made) for v, made in scene.made.items()} == dict.fromkeys("12345", 1)


@pytest.mark.parametrize("shares", [{"3": 0.2}, {"2": 0.7, "3": 0.2}, {"2": 0.0, "3": 0.2}, {}])
@in_virtual_time
async def test_shares_change_at_once_while_another_version_loads(shares: Mapping[str, float]) -> None:
    """A rollback above all does not wait for what may take minutes."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        scene.want("1", CANARY | {"3": 0.2})
        await scene.ask(1)
        scene.want("1", shares)
        await scene.ask(0.6)
        during = await scene.ask(1.2)
        await scene.ask(LOADED_S * 2 - 1)
        after = await scene.ask(1)
    answered = scene.answered_by()
    running = {"2": shares.get("2", 0.0)}
    assert [answered[q] for q in during] == [draw.version(q, running) or "1" for q in during]
    assert [answered[q] for q in after] == [draw.version(q, shares) or "1" for q in after]


@in_virtual_time
async def test_a_canary_that_hangs_is_routed_around_while_another_version_loads() -> None:
    """Its rows go to the version that serves; what loads is none the wiser."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        scene.want("1", CANARY | {"3": 0.2})
        await scene.ask(1)
        scene.made["2"][0].hung = HungError("it does not come back")
        await scene.ask(0.6)
        during = await scene.ask(1.2)
        await scene.ask(LOADED_S)
    answered = scene.answered_by()
    assert {answered[q] for q in during} == {"1"}
    assert set(scene.answered_by(since=scene.asked - 100).values()) == {"1", "3"}
    assert len(scene.made["2"]) == 1


@in_virtual_time
async def test_a_canary_goes_on_until_it_serves() -> None:
    """It can be named all the while that it is loaded once more, to take over."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        scene.want("2")
        await scene.ask(LOADED_S + 1, "2")
    assert set(scene.answered_by(since=scene.asked - round(100 * LOADED_S)).values()) == {"2"}


@in_virtual_time
async def test_a_query_that_names_the_canary_gets_one_of_several_by_their_shares() -> None:
    """Never the version that serves; which one follows from the query's id."""
    async with Scene().playing() as scene:
        await scene.load("1", {"2": 0.3, "3": 0.1}, seconds=LOADED_S * 2)
        named = await scene.ask(2, "canary")
    by = scene.answered_by()
    answered = [by[q] for q in named]
    assert set(answered) == {"2", "3"}
    assert 0.65 < answered.count("2") / len(answered) < 0.85


@in_virtual_time
async def test_a_canary_is_promoted_without_a_query_lost_or_late() -> None:
    """It serves everything, under its own name."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        await scene.load("2", seconds=LOADED_S + 1)
    assert set(scene.served()) == {"1", "2"}
    assert set(scene.answered_by(since=scene.asked - 50).values()) == {"2"}


@in_virtual_time
async def test_a_worker_that_starts_anew_has_its_canary_again() -> None:
    """The topic says all that is wanted."""
    scene = Scene()
    scene.history = [(b"digits@2", CODEC.encode(version("2"))), (b"digits", CODEC.encode(version("1", CANARY)))]
    async with scene.playing():
        await scene.ask(LOADED_S + 1)
    assert set(scene.answered_by().values()) == {"1", "2"}
    report = scene.last_report()
    assert report.gauges["canary{model=digits,version=2}"] == 0.3
    assert report.counters["rows_total{model=digits,version=2,outcome=ok}"] > 0


@in_virtual_time
async def test_a_slow_canary_makes_nothing_late_but_its_own() -> None:
    """It has a queue and a thread of its own: what it does not take waits for nobody."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        scene.made["2"][0].took_s = 3.0
        await scene.ask(5)
    assert {o for batch in scene.batches() if batch.version == "1" for o in batch.outcomes} == {Outcome.OK}
    assert max(max(batch.waited_us) for batch in scene.batches() if batch.version == "1") < 600_000
    assert Outcome.EXPIRED in {o for batch in scene.batches() if batch.version == "2" for o in batch.outcomes}


@in_virtual_time
async def test_a_canary_that_hangs_fails_its_rows_and_is_routed_around() -> None:
    """The worker and the version that serves go on; the canary's share goes to that one."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY)
        scene.made["2"][0].hung = HungError("it does not come back")
        await scene.ask(3)
    assert set(scene.answered_by(since=scene.asked - 100).values()) == {"1"}
    assert "failed" in scene.answered_by().values()
    assert len(scene.made["2"]) == 1
    assert scene.last_report().counters["version_failures_total{model=digits}"] == 1


@in_virtual_time
async def test_a_canary_that_cannot_be_loaded_gets_no_queries_and_is_tried_again() -> None:
    """Its share stays with the version that serves."""
    scene = Scene()
    scene.faults["2"] = PackageError("a file is not the one that was packaged")
    scene.history = [(b"digits@2", CODEC.encode(version("2"))), (b"digits", CODEC.encode(version("1", CANARY)))]
    async with scene.playing():
        await scene.ask(14)
    assert scene.served() == ["1"]
    assert len(scene.made["2"]) > 1


@in_virtual_time
async def test_a_query_gets_the_version_that_it_names_or_none() -> None:
    """By number or label, for all models or this one; of what does not run the outcome says so."""
    scene = Scene()
    asked = {
        "1": "1",
        "stable": "1",
        "2": "2",
        "canary": "2",
        "digits@2": "2",
        "digits@canary": "2",
        "4": "unknown_version",
        "3": "unknown_version",  # a shadow answers nothing
        "digits@": "",
        "others@4": "",
    }
    async with scene.playing():
        await scene.load("1", CANARY | {"3": 0.0}, seconds=LOADED_S * 2)
        named = {name: await scene.ask(0.5, name) for name in asked}
    answered = scene.answered_by()
    for name, expected in asked.items():
        assert {answered[q] for q in named[name]} == ({expected} if expected else {"1", "2"})
    said = {message for batch in scene.batches() for message in batch.messages}
    assert said == {f"model digits runs 1, 2 (canary), 3 (shadow), not {name}" for name in ("4", "3")}


@in_virtual_time
async def test_a_shadow_is_asked_everything_and_answers_nothing() -> None:
    """Its outputs stand in a topic of their own; queries are complete without them."""
    async with Scene().playing() as scene:
        await scene.load("1", {"2": 0.0})
        scene.made["2"][0].took_s = 0.5
        during = await scene.ask(2)
    assert scene.served() == ["1"]
    shadowed = [q for batch in scene.batches(topics.SHADOWS) for q in batch.query_ids]
    assert len(shadowed) == len(set(shadowed))
    assert set(shadowed) >= set(during)
    assert {batch.version for batch in scene.batches(topics.SHADOWS)} == {"2"}
    assert scene.broker.committed[TOPIC, 0] == scene.asked
    assert scene.last_report().gauges["shadow{model=digits,version=2}"] == 1


def test_the_old_version_is_unloaded_first_where_that_is_wanted() -> None:
    """Never two at once: queries wait meanwhile, and those that cannot are expired."""
    scene = played(Scene(WorkerSettings(unload_first=True)), "2")
    answered = scene.answered_by()
    assert set(answered.values()) == {"1", "2", "expired"}
    assert scene.made["1"][0].stopped
    assert set(scene.answered_by(since=scene.asked - 50).values()) == {"2"}


@in_virtual_time
async def test_the_old_version_is_loaded_again_if_the_new_one_cannot_be() -> None:
    """Unloaded first, it comes back; the other is tried again later."""
    scene = Scene(WorkerSettings(unload_first=True))
    scene.faults["2"] = PackageError("damaged")
    async with scene.playing():
        await scene.load("2", seconds=9)
    assert len(scene.made["1"]) == 2
    assert set(scene.answered_by(since=scene.asked - 50).values()) == {"1"}
    assert scene.last_report().counters["version_switches_total{model=digits}"] == 0


@in_virtual_time
async def test_a_version_that_stands_by_answers_those_who_name_it_and_nobody_else() -> None:
    """By its number or a label of it; when it is wanted no longer, who names it gets no answer of another version."""
    async with Scene().playing() as scene:
        scene.want("1", standby=("1", "2"), labels={"nightly": "3", "tested": "1"})
        await scene.ask(LOADED_S * 2)
        plain = await scene.ask(1)
        named = {name: await scene.ask(0.5, name) for name in ("2", "nightly", "digits@nightly", "tested", "canary")}
        scene.want("1", labels={"nightly": "2"})
        await scene.ask(1)
        moved, gone = await scene.ask(0.5, "nightly"), await scene.ask(0.5, "3")
    by = scene.answered_by()
    assert {by[q] for q in plain} == {"1"}
    expected = {"2": "2", "nightly": "3", "digits@nightly": "3", "tested": "1", "canary": "unknown_version"}
    assert {name: {by[q] for q in queries} for name, queries in named.items()} == {
        name: {found} for name, found in expected.items()
    }
    assert ({by[q] for q in moved}, {by[q] for q in gone}) == ({"2"}, {"unknown_version"})
    assert [made.stopped for made in scene.made["3"]] == [True]
    gauges = scene.last_report().gauges
    assert gauges["standby{model=digits,version=2}"] == 1
    assert gauges["labelled{model=digits,version=2,label=nightly}"] == 1


@pytest.mark.parametrize("more", [{"standby": ("1",)}, {"labels": {"old": "1"}}, {"shares": {"1": 0.2}}])
@in_virtual_time
async def test_the_version_that_served_goes_on_beside_the_next_one_without_being_loaded_again(
    more: Mapping[str, Any],
) -> None:
    """Whoever names it is answered by it throughout."""
    async with Scene().playing() as scene:
        scene.want("2", **more)
        named = await scene.ask(LOADED_S + 2, "1")
        rest = await scene.ask(1)
    by = scene.answered_by()
    assert {by[q] for q in named} == {"1"}
    assert "2" in {by[q] for q in rest}
    assert {v: len(made) for v, made in scene.made.items()} == {"1": 1, "2": 1}


@in_virtual_time
async def test_a_canary_that_comes_to_stand_by_goes_on_and_a_shadow_starts_again() -> None:
    """A shadow's answers go to another topic."""
    async with Scene().playing() as scene:
        await scene.load("1", CANARY | {"3": 0.0}, seconds=LOADED_S * 2)
        scene.want("1", standby=("2", "3"))
        await scene.ask(0.5)
        canary = await scene.ask(1, "2")
        await scene.ask(LOADED_S + 1)
        shadow = await scene.ask(1, "3")
    by = scene.answered_by()
    assert ({by[q] for q in canary}, {by[q] for q in shadow}) == ({"2"}, {"3"})
    assert {v: len(made) for v, made in scene.made.items()} == {"1": 1, "2": 1, "3": 2}


BOUNDED = WorkerSettings(load_retries=2, load_retry_us=1_000_000)


@in_virtual_time
async def test_a_version_that_cannot_be_loaded_is_given_up_after_its_retries_and_begins_anew_when_it_is_mended() -> (
    None
):
    """The reports give the reason and the attempts; a record about the model, as for a mended package, begins anew."""
    scene = Scene(BOUNDED, faults={"2": PackageError("/data/net-2: net.onnx is missing")})
    async with scene.playing():
        await scene.load("2", seconds=40)
        given_up = scene.last_report().gauges
        attempts = len(scene.made["2"])
        del scene.faults["2"]
        await scene.ask(5)
        as_it_was = len(scene.made["2"])
        await scene.load("2", seconds=LOADED_S + 1)
    assert (attempts, as_it_was) == (3, 3)
    fault = "version_fault{model=digits,version=2,reason=+data+net-2:_net.onnx_is_missing}"
    assert (given_up[fault], given_up["version_given_up{model=digits,version=2}"]) == (3, 1)
    assert scene.served() == ["1", "2"]
    assert not [name for name in scene.last_report().gauges if name.startswith(("version_fault", "version_given_up"))]


@pytest.mark.parametrize("more", [{"shares": {"2": 0.3}}, {"standby": ("2",)}])
@in_virtual_time
async def test_a_version_beside_another_is_given_up_after_its_retries(more: Mapping[str, Any]) -> None:
    """The version that serves answers for it; others are loaded all the same."""
    scene = Scene(BOUNDED, faults={"2": PackageError("damaged")})
    async with scene.playing():
        scene.want("1", **more)
        await scene.ask(40)
        scene.want("3", **more)
        await scene.ask(LOADED_S + 1)
        first = len(scene.made["2"])
        await scene.ask(40)
    assert scene.served() == ["1", "3"]
    assert first > 3  # another record about the model began its attempts anew
    assert len(scene.made["2"]) == 6
    assert scene.last_report().gauges["version_given_up{model=digits,version=2}"] == 1
