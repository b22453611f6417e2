"""Steps of candidates are replayed: from the wishes and the observations the kernel comes to the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas import topics
from schemas.records import Measurement, Measurements, MetricValue, Promotion, WatchedMetric
from streams.operators.join.kernel import JoinerSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.replay.recording import MemoryTrace
from tests.comparisons import plan, seen
from tests.unit.streams.control.test_promoting import CODEC, KEY, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Observation
    from streams.replay.report import ReplayReport

APPLICATIONS = ("digits", "letters")


class Courses(Place):
    """A deployment whose candidates come one after the other; two applications ask the model."""

    def __init__(self, **changes: object) -> None:
        super().__init__(**changes)
        self.errors = {"1": 0.25, "2": 0.05, "3": 0.6}
        self.names = "2", "1"

    def observations(self) -> Iterator[Observation]:
        """Return what is observed from now on: who answers is drawn, how often each is wrong is given."""
        random = np.random.default_rng(self.now_us)
        share, number = self.wanted.share, 0
        while True:
            version = self.names[random.random() >= share]
            loss = float(random.random() < self.errors[version])
            yield seen(f"{self.now_us}-{number}", {version: loss}, APPLICATIONS[number % 2])
            number += 1

    def wish(self, candidate: str, incumbent: str, **changes: object) -> None:
        """Want another candidate from now on."""
        self.names = candidate, incumbent
        self.wanted.shares.append(("", 0.0))
        its = plan(candidate=candidate, incumbent=incumbent, since_us=self.now_us, **changes)
        self.log.write(topics.CANDIDATES, KEY, its, self.now_us)


async def recorded() -> MemoryTrace:
    """Let version 2 take over, turn bad and go back; version 3 goes back at once by its losses, then by a guard."""
    place = Courses(holdback=0.05)
    await place.run(60)
    place.wanted.shares.append(("", 0.95))
    place.errors["2"] = 0.9
    await place.run(40)
    place.wish("3", "1")
    await place.run(40)
    place.wish("3", "1", limits={"failures": 0.05})
    await place.run(5)
    await place.run(2, failures=0.5)
    return MemoryTrace(place.log.records)


def replayed(trace: MemoryTrace) -> ReplayReport:
    """Replay a trace of steps."""
    return replay(trace, RecordedDeployment(joiner=JoinerSettings(2)), CODEC)


def changed(trace: MemoryTrace, number: int, **fields: Any) -> MemoryTrace:
    """Return a trace with one of its steps changed."""
    log = trace.logs[topics.PROMOTIONS, 0]
    step = CODEC.decode(Promotion, log[number].value)
    log[number] = log[number]._replace(value=CODEC.encode(step._replace(**fields)))
    return trace


async def test_every_step_comes_out_as_it_was() -> None:
    """Also those of a version that turns out worse after it took over, and those that a guard asks for."""
    trace = await recorded()
    steps = [CODEC.decode(Promotion, record.value) for record in trace.logs[topics.PROMOTIONS, 0]]
    report = replayed(trace)

    assert [each.action for each in steps] == [
        *("begin", "step", "step", "promote", "back"),
        *("begin", "back"),
        *("begin", "back"),
    ]
    assert steps[-1].guards == {"failures": 0.5}
    assert report.differences == []
    assert report.checked["steps"] == len(steps)
    assert [*report.unchecked] == ["tapes_missing"]  # it has steps and observations alone


CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "a bound": (2, {"lower": 0.5}),
    "a count": (3, {"pairs": 9_999}),
    "a share": (1, {"share": 0.5}),
    "a verdict": (1, {"action": "promote", "share": 1.0}),
    "a guard": (8, {"guards": {"failures": 0.01}}),
    "a reason": (6, {"reason": "it is better"}),
    "how much it had seen": (2, {"offsets": (1, 1)}),
    "what it could not have seen": (2, {"offsets": (10**6, 10**6)}),
    "after it took over": (4, {"cost": 1.0}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_step_that_is_not_as_it_was_is_found(name: str) -> None:
    """Whatever of it is changed."""
    number, fields = CHANGES[name]
    report = replayed(changed(await recorded(), number, **fields))

    assert report.different["steps"] >= 1
    assert report.differences[0].kind == "steps"
    assert report.differences[0].id.startswith("version/forest@")


async def test_an_observation_less_is_found_in_the_steps_after_it() -> None:
    """They go by all of them."""
    trace = await recorded()
    del trace.logs[topics.OBSERVATIONS, 0][700]

    assert replayed(trace).different["steps"] >= 1


async def test_what_a_step_goes_by_must_be_in_the_trace() -> None:
    """Steps are recorded from their beginning, observations perhaps not; wishes may have been replaced."""
    late, replaced = await recorded(), await recorded()
    for log in late.logs[topics.OBSERVATIONS, 0], late.logs[topics.OBSERVATIONS, 1]:
        del log[: log.index(next(record for record in log if record.timestamp_us > 50_000_000))]
    del replaced.logs[topics.CANDIDATES, 0][0]
    found = replayed(late), replayed(replaced)

    assert [report.differences for report in found] == [[], []]
    assert found[0].unchecked["observations_missing"] == 5
    assert found[0].checked["steps"] == 4
    assert found[1].unchecked["wish_missing"] == 5


async def test_a_step_of_an_earlier_release_is_counted() -> None:
    """It does not say which observations had been read."""
    report = replayed(changed(await recorded(), 2, offsets=()))

    assert report.differences == []
    assert report.unchecked["offsets_missing"] == 1


async def test_a_step_that_was_taken_twice_is_counted() -> None:
    """Two control roles that run at a time take the same steps."""
    trace = await recorded()
    log = trace.logs[topics.PROMOTIONS, 0]
    step = CODEC.decode(Promotion, log[1].value)
    log.insert(2, log[1]._replace(value=CODEC.encode(step._replace(time_us=step.time_us + 1))))
    report = replayed(trace)

    assert report.differences == []
    assert report.inferred["repeated"] == 1


class MeasuredCourses(Courses):
    """The version that comes is better, and slower at its next share; latency has a guardrail of 20 ms."""

    def observations(self) -> Iterator[Observation]:
        """Yield observations; each comes behind a measurement of the same query."""
        for one in super().observations():
            version = one.versions[0].version
            slow = 0.4 if version == "2" and self.wanted.share > 0.1 else 0.0
            values = (MetricValue("latency", 0.0, 0.3 + slow),)
            measured = Measurement(one.query_id, one.application, None, one.decision, values, (f"forest@{version}",))
            self.log.write(topics.OBSERVATIONS, one.application.encode(), Measurements((measured,)), self.now_us)
            yield one


async def test_a_step_that_goes_by_a_metric_comes_out_as_it_was_and_another_one_is_found() -> None:
    """The control role sends back what is better and slower; the trace says so again, bit for bit."""
    watched = WatchedMetric("digits", "latency", 200.0, "ms", 20.0)
    place = MeasuredCourses(metrics=(watched,))
    await place.run(40)
    trace = MemoryTrace(place.log.records)
    steps = [CODEC.decode(Promotion, record.value) for record in trace.logs[topics.PROMOTIONS, 0]]
    assert [each.action for each in steps] == ["begin", "step", "step", "back"]
    assert steps[-1].reason.startswith("latency breaks its guardrail: ")
    assert steps[-1].metrics[0].upper < -20.0

    report = replayed(trace)
    assert report.differences == []
    assert report.checked["steps"] == 4
    wrong = (steps[-1].metrics[0]._replace(pairs=1),)
    assert replayed(changed(trace, 3, metrics=wrong)).different["steps"] == 1
