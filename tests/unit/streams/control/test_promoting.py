"""The control role carries candidates on: topics in memory, a deployment that remembers what is wanted of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, Measurement, Measurements, MetricValue, Observation, WatchedMetric
from streams.control.carry.promoting import Promoting
from streams.control.page.promotion_rows import promotion_rows
from streams.gateway.protocol.values import dumped
from streams.operators.contract import Record
from streams.operators.ids import ID_BYTES
from streams.runtime.errors import BrokerUnavailableError
from tests.comparisons import DECISION, SECOND_US, WINDOW_US, canary, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Candidate, Promotion
    from streams.promotion.verdict import CandidateStage

CODEC = Codec()
KEY = b"version/forest"


class Log:
    """Topics in memory; each application's observations have a partition of their own."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.applications: dict[bytes, int] = {}
        self.ends: Counter[tuple[str, int]] = Counter()

    def write(self, topic: str, key: bytes, value: object | None, now_us: int) -> None:
        """Append a record."""
        encoded = None if value is None else CODEC.encode(value)
        partition = self.applications.setdefault(key, len(self.applications)) if topic == topics.OBSERVATIONS else 0
        self.records.append(Record(topic, partition, self.ends[topic, partition], now_us, key, encoded))
        self.ends[topic, partition] += 1


class Follower:
    """Follows some topics of a log; implements `ports.Broadcast`."""

    def __init__(self, log: Log, names: Sequence[str], since_us: int | None) -> None:
        self._log = log
        self._names = names
        self._since_us = since_us or 0
        self._next = 0

    async def start(self) -> None:
        """Connect."""

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what is new."""
        begin, self._next = self._next, len(self._log.records)
        new = self._log.records[begin:]
        return [r for r in new if r.topic in self._names and r.timestamp_us >= self._since_us]

    @property
    def caught_up(self) -> bool:
        """Whether everything was returned."""
        return self._next > 0

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""


class Wanted:
    """What is wanted of the deployment; implements `Deployment`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.shares: list[tuple[str, float]] = []
        self.changed = ""
        self.stands = ""  # the action whose outcome is there, whoever brought it about
        self.ends_at = ""  # the action at which the process ends before the step is written
        self.away = False
        self.now_us = 0

    @property
    def share(self) -> float:
        """Of the candidate."""
        return self.shares[-1][1] if self.shares else 0.0

    def fault_of(self, plan: Candidate, stage: CandidateStage, due: Promotion | None) -> str:
        """See `Deployment`."""
        return "" if due is not None and due.action == self.stands else self.changed

    def take(self, plan: Candidate, step: Promotion) -> str:
        """See `Deployment`."""
        if self.away:
            raise BrokerUnavailableError("no broker")
        self.shares.append((step.action, step.share))
        if step.action == self.ends_at:
            raise KeyboardInterrupt
        self.end(step)
        return ""

    def end(self, step: Promotion) -> None:
        """See `Deployment`."""
        self.log.write(topics.PROMOTIONS, KEY, step, self.now_us)


class Place:
    """A deployment with a candidate: a query every 10 ms, a look every second."""

    def __init__(self, **changes: object) -> None:
        self.log = Log()
        self.log.write(topics.APPLICATIONS, b"", None, 0)
        self.wanted = Wanted(self.log)
        self.now_us = 0
        self.rates = 0.05, 0.25
        self.ids_bytes = 1 << 20
        self.promoting = self.started()
        if changes is not None:
            self.log.write(topics.CANDIDATES, KEY, plan(**changes), 0)

    def started(self) -> Promoting:
        """Return what a new process begins with."""
        return Promoting(self.follow, CODEC, WINDOW_US, self.ids_bytes, self.wanted)

    def follow(self, names: Sequence[str], since_us: int | None) -> Follower:
        """Follow topics of its log."""
        return Follower(self.log, names, since_us)

    def observations(self) -> Iterator[Observation]:
        """Return what is observed from now on."""
        return canary(self.now_us, self.wanted.share, *self.rates, first=self.now_us)

    async def run(self, seconds: int, **guards: float) -> list[tuple[str, float]]:
        """Let time go by; returns what has been done so far."""
        for _ in range(seconds):
            for seen in islice(self.observations(), 100):
                self.log.write(topics.OBSERVATIONS, seen.application.encode(), seen, self.now_us)
                self.now_us += SECOND_US // 100
            self.wanted.now_us = self.now_us
            await self.promoting.tick(self.now_us, lambda: {KEY.decode(): guards})
        return self.wanted.shares


async def test_a_better_candidate_is_carried_all_the_way() -> None:
    """Each step changes what is wanted and is written, in this order."""
    place = Place()
    done = await place.run(100)
    assert done == [("begin", 0.1), ("step", 0.25), ("step", 0.5), ("promote", 1.0)]
    assert [(step.action, step.share) for step in place.promoting.steps] == done
    assert all(step.lower <= step.difference <= step.upper for step in place.promoting.steps)


async def test_guardrails_are_measured_when_candidates_are_known_and_no_step_is_taken_while_the_page_is_blind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that has just begun knows no candidate before its first look: one without guardrails could step."""
    monkeypatch.setattr("streams.control.carry.fairly.TURN_S", float("inf"))
    place, known = Place(), list[int]()
    await place.run(1)
    place.promoting = place.started()

    def guards() -> dict[str, dict[str, float]]:
        known.append(len(place.promoting.courses))
        return {}

    await place.promoting.tick(place.now_us, guards, lambda: False)
    assert known == []
    await place.promoting.tick(place.now_us, guards)
    assert known == [1]


async def test_the_page_shows_how_a_candidate_compares_by_each_metric() -> None:
    """In its unit, with bounds and its guardrail; one that nobody measures is there, too, and holds it back."""
    watched = WatchedMetric("digits", "latency", 200.0, "ms", 20.0), WatchedMetric("digits", "sold", 5.0)
    place = Place(metrics=watched)
    await place.run(5)
    for number in range(400):
        values = (MetricValue("latency", 0.0, 0.25 + 0.1 * (number % 2)),)
        about = "digits", None, DECISION, values, (f"forest@{1 + number % 2}",)
        measured = Measurement(f"m{number}", *about)
        place.log.write(topics.OBSERVATIONS, b"digits", Measurements((measured,)), place.now_us)
    await place.promoting.tick(place.now_us, dict)
    (row,) = promotion_rows(place.promoting)["candidates"]
    latency, sold = row["metrics"]
    assert (latency["difference"], latency["unit"], latency["guardrail"]) == (-20.0, "ms", 20.0)
    assert latency["lower"] < -20.0 < latency["upper"]
    assert (sold["pairs"], sold["lower"], sold["upper"]) == (0, -5.0, 5.0)


async def test_a_worse_candidate_goes_back_and_is_forgotten() -> None:
    """Its wish is over, also for a process that starts later."""
    place = Place()
    place.rates = 0.6, 0.1
    assert await place.run(60) == [("begin", 0.1), ("back", 0.0)]
    place.promoting = place.started()
    assert await place.run(20) == [("begin", 0.1), ("back", 0.0)]
    assert not place.promoting.courses


async def test_a_restart_goes_on_where_it_was() -> None:
    """With the evidence that there was, which is folded again."""
    place = Place()
    await place.run(6)
    (before,) = [course.comparison.evidence(0.05) for course in place.promoting.courses.values()]
    place.promoting = place.started()
    await place.promoting.tick(place.now_us, dict)
    (after,) = [course.comparison.evidence(0.05) for course in place.promoting.courses.values()]
    assert after == before
    assert before.pairs > 0


async def test_what_is_folded_after_a_start_leaves_the_page_its_turns() -> None:
    """Thousands of observations that come with one poll are folded a few at a time."""
    place = Place()
    for seen in islice(place.observations(), 5_000):
        place.log.write(topics.OBSERVATIONS, seen.application.encode(), seen, place.now_us)
    folding = asyncio.create_task(place.promoting.tick(place.now_us, dict))
    turns = 0
    while not folding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5_000 / 100


async def test_a_guard_over_its_limit_sends_it_back() -> None:
    """Whatever its losses are."""
    place = Place(limits={"failures": 0.05})
    await place.run(10, failures=0.04)
    assert (await place.run(1, failures=0.06))[-1] == ("back", 0.0)
    await place.run(1)
    assert "failures 0.06 is over its limit" in place.promoting.steps[-1].reason


async def test_what_somebody_else_has_changed_ends_the_way() -> None:
    """The command line has the last word: nothing is changed back."""
    place = Place()
    await place.run(5)
    place.wanted.changed = "somebody has ended forest 2"
    assert await place.run(2) == [("begin", 0.1)]
    assert place.promoting.steps[-1].action == "end"
    assert not place.promoting.courses


async def test_a_step_that_was_taken_but_not_written_is_written_after_a_restart() -> None:
    """The process ended between the two: the deployment stands where the step leads, and the evidence says so still."""
    place = Place()
    place.rates = 0.6, 0.1
    place.wanted.ends_at = "back"
    with pytest.raises(KeyboardInterrupt):
        await place.run(60)
    assert [step.action for step in place.promoting.steps] == ["begin"]
    place.wanted.ends_at, place.wanted.stands, place.wanted.changed = "", "back", "somebody has ended forest 2"
    place.promoting = place.started()
    await place.run(2)
    assert [step.action for step in place.promoting.steps] == ["begin", "back"]
    assert not place.promoting.courses


async def test_while_the_broker_is_away_steps_wait() -> None:
    """They are taken once it is back."""
    place = Place()
    place.wanted.away = True
    assert await place.run(5) == []
    place.wanted.away = False
    assert await place.run(1) == [("begin", 0.1)]


@pytest.mark.parametrize("changes", [{"alpha": 0.0}, {"steps": ()}, {"least": 0}])
async def test_an_impossible_wish_of_another_program_holds_up_nobody(changes: dict[str, object]) -> None:
    """It is passed over."""
    place = Place()
    place.log.write(topics.CANDIDATES, b"version/bayes", plan(name="bayes", **changes), 0)
    assert (await place.run(100))[-1] == ("promote", 1.0)
    assert [*place.promoting.courses] == [KEY.decode()]


async def test_wishes_are_prepared_for_before_they_are_taken() -> None:
    """What a wish names may have to be imported, which takes longer than a look."""
    place, prepared = Place(), []

    async def prepare(records: Sequence[Record]) -> None:
        assert not promoting.courses
        prepared.extend(record.topic for record in records)

    promoting = Promoting(place.follow, CODEC, WINDOW_US, place.ids_bytes, place.wanted, prepare)
    await promoting.tick(0, dict)
    assert prepared == [topics.APPLICATIONS, topics.CANDIDATES]
    assert KEY.decode() in promoting.courses


async def test_a_withdrawn_wish_is_not_carried_on() -> None:
    """And nothing is read any more."""
    place = Place()
    await place.run(5)
    place.log.write(topics.CANDIDATES, KEY, None, place.now_us)
    assert await place.run(100) == [("begin", 0.1)]
    assert not place.promoting.courses


async def test_copies_count_once() -> None:
    """An observation may come again at any later place of its log."""
    place = Place()
    await place.run(5)
    before = promotion_rows(place.promoting)
    place.log.records += [
        record._replace(offset=record.offset + 10_000)
        for record in place.log.records
        if record.topic == topics.OBSERVATIONS
    ]
    await place.promoting.tick(place.now_us, dict)
    assert promotion_rows(place.promoting) == before


async def test_ids_take_no_more_than_they_may_and_what_was_forgotten_is_told() -> None:
    """Of 100 observations a second the last two seconds are remembered."""
    place = Place()
    place.ids_bytes = 300 * ID_BYTES
    place.promoting = place.started()
    await place.run(10)
    found = place.promoting.statistics()
    assert 200 * ID_BYTES <= found["ids_bytes"] <= found["ids_bytes_limit"] == 300 * ID_BYTES
    assert found["ids_forgotten_total"] == promotion_rows(place.promoting)["forgotten"] == 700


async def test_the_page_shows_how_a_difference_has_stood() -> None:
    """With its bounds, which close in, and what the application's answers cost meanwhile."""
    place = Place()
    place.rates = 0.2, 0.2
    await place.run(30)
    rows = promotion_rows(place.promoting)
    assert json.loads(dumped(rows)) == json.loads(json.dumps(rows))  # plain values: orjson writes no named tuples
    (candidate,) = rows["candidates"]
    course = candidate["course"]
    assert 10 < len(course) <= 16
    widths = [upper - lower for _, _, lower, upper in course]
    assert widths[-1] < widths[1]
    assert all(lower <= mean <= upper for _, mean, lower, upper in course)
    served = rows["serving"]["digits"]
    assert served["answers"] == 3_000
    assert served["lower"] < served["loss"] < served["upper"]


async def test_without_a_candidate_what_serves_is_shown_where_its_log_can_be_judged() -> None:
    """One that asks a single model tells nothing about others; one that explores does."""
    place = Place()
    place.log.records.clear()
    for number in range(600):
        for name, shares in (("explores", (0.9, 0.1)), ("always", (1.0, 0.0))):
            decision = Decision((0,), 0, name, "policy()", ("one", "other"), shares)
            seen = Observation(
                f"{name}{number}", name, None, decision, (0.0, None), number % 2, None, JoinStatus.JOINED, number, 0
            )
            place.log.write(topics.OBSERVATIONS, name.encode(), seen, number * SECOND_US)
    await place.promoting.tick(600 * SECOND_US, dict)
    rows = promotion_rows(place.promoting)
    assert [*rows["serving"]] == ["explores"]
    assert rows["serving"]["explores"]["answers"] == 300  # of the last five minutes
    assert rows["serving"]["explores"]["loss"] == 0.5
