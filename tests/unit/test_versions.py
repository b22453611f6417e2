"""A worker changes the version of its model under load: what is wanted takes over between two batches, or never."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Report, Tensor
from tests.fakes import FakeBroadcast, FakeBroker, FakeConsumer, fake_ports
from tests.samples import model_query
from tests.virtual import VirtualClock, elapse, run
from workers.errors import PackageError
from workers.executor import Timed
from workers.rows import Predicted
from workers.runner import Worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

CODEC = Codec()
TOPIC = topics.model_queries("digits")
SLACK_US = 2_000_000  # shorter than loading takes; the fake consumer polls twice a second


def version(name: str) -> Model:
    """Make a version of the model."""
    return Model("digits", name, "function", f"/nowhere/{name}", f"digest {name}", "label", "float32", (1,))


class Answering:
    """Answers its version's number to every row after 5 ms; loading takes 3 s."""

    def __init__(self, model: Model, fault: Exception | None, outcome: Outcome) -> None:
        self.number = int(model.version)
        self.ready = False
        self.batches = 0
        self.stopped = False
        self._fault = fault
        self._outcome = outcome

    async def start(self) -> None:
        """Take a while, or fail."""
        await elapse(3)
        if self._fault is not None:
            raise self._fault
        self.ready = True

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict."""
        assert not self.stopped
        self.batches += 1
        await elapse(0.005)
        return Timed(Predicted((self._outcome,) * len(inputs), np.full(len(inputs), self.number)), 5_000)

    async def stop(self) -> None:
        """Remember."""
        self.stopped = True


class Scene:
    """A worker of version 1 that is asked every 10 ms, and a topic `models` that it follows."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.consumer = FakeConsumer(self.broker, [(TOPIC, 0)])
        self.made: dict[str, list[Answering]] = {}
        self.faults: dict[str, Exception] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.asked = 0
        self.history: list[tuple[bytes, bytes]] = []  # keys and values in `models` before the worker starts
        ports = fake_ports(
            self.broker, self.consumer, encode=CODEC.encode, broadcast=FakeBroadcast(self.broker, (topics.MODELS,))
        )
        self.worker = Worker(version("1"), "worker-1", WorkerSettings(), ports, CODEC, make=self.make)

    def make(self, model: Model) -> Answering:
        """Make what runs a version."""
        outcome = self.outcomes.get(model.version, Outcome.OK)
        made = Answering(model, self.faults.get(model.version), outcome)
        self.made.setdefault(model.version, []).append(made)
        return made

    def want(self, name: str) -> None:
        """Say which version is to serve."""
        self.broker.put(topics.MODELS, 0, CODEC.encode(version(name)), key=b"digits")

    async def ask(self, seconds: float) -> None:
        """Ask every 10 ms for a while."""
        for _ in range(round(seconds * 100)):
            row = Tensor.of(np.array([0], dtype=np.float32))
            query = model_query(f"q{self.asked}", 0, VirtualClock().now_us() + SLACK_US, row)
            self.broker.put(TOPIC, 0, CODEC.encode(query))
            self.asked += 1
            await elapse(0.01)

    def batches(self) -> list[ModelPredictions]:
        """Return what was answered, in order."""
        return [CODEC.decode(ModelPredictions, value) for value in self.broker.values(topics.MODEL_PREDICTIONS)]

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

    def last_report(self) -> Report:
        """Return the worker's last report."""
        return CODEC.decode(Report, self.broker.values(topics.REPORTS)[-1])


def play(*steps: str) -> Scene:
    """Run a worker through steps: a version that is wanted, then 6 s of load; returns the scene afterwards."""
    return played(Scene(), *steps)


def played(scene: Scene, *steps: str) -> Scene:
    """Run a scene's worker through steps."""

    async def script() -> None:
        for key, value in scene.history:
            scene.broker.put(topics.MODELS, 0, value, key=key)
        stop = asyncio.Event()
        running = asyncio.create_task(scene.worker.run(stop))
        await scene.worker.ready.wait()
        await scene.ask(1)
        for name in steps:
            scene.want(name)
            await scene.ask(6)
        await elapse(1)
        stop.set()
        await running

    run(script())
    return scene


def test_a_version_takes_over_and_is_taken_back_without_a_query_lost_or_late() -> None:
    """There and back under load: every answer carries the version that gave it, and none has waited for a load."""
    scene = play("2", "1")
    assert scene.served() == ["1", "2", "1"]
    assert [made.stopped for made in scene.made["2"]] == [True]


def test_a_version_that_cannot_be_loaded_changes_nothing_and_is_tried_again() -> None:
    """The present one goes on; the report says that the other failed."""
    scene = Scene()
    scene.faults["2"] = PackageError("a file is not the one that was packaged")
    assert played(scene, "2", "2", "2").served() == ["1"]
    assert len(scene.made["2"]) > 1
    assert scene.last_report().counters["version_failures_total{model=digits}"] >= 1


def test_a_version_that_answers_none_of_the_last_rows_does_not_take_over() -> None:
    """Real rows are replayed before it joins; one that fails on all of them is no improvement."""
    scene = Scene()
    scene.outcomes["2"] = Outcome.FAILED
    assert played(scene, "2").served() == ["1"]
    assert scene.made["2"][0].batches == 1


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
