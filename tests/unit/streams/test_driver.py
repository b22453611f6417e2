"""The public driver: everything about a role but its operator comes from the topology."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from schemas import topics
from streams.operators.contract import Emit, FetchStates, Operator, Skip
from streams.testing import START_US, Crash, Driver, Pace
from streams.topology import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streams.operators.contract import Effects, Record


@dataclass
class Noting(Operator):
    """Notes what it is given and does what `effects` says of it."""

    effects: Callable[[Record], Effects] = lambda record: [Skip((record.position,), "seen")]
    seen: list[Record] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Note, and answer."""
        self.seen += records
        return [effect for record in records for effect in self.effects(record)]

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Note."""
        self.starts |= {number: start for number, start in starts.items() if start is not None}


def noted(driver: Driver, role: str) -> Noting:
    """Return the operator that a role runs now."""
    operator = driver.operator(role)
    assert isinstance(operator, Noting)
    return operator


def test_a_role_reads_all_partitions_of_what_the_topology_says() -> None:
    """Consumed and followed topics, each with its own number of partitions; nothing else."""
    driver = Driver(
        build(["knn"], partitions=3, model_partitions={"knn": 2}), {"selection": Noting, "worker.knn": Noting}
    )
    for topic, partition in ((topics.QUERIES, 2), (topics.MODEL_PREDICTIONS, 0), (topics.MODELS, 0)):
        driver.produce(topic, partition, b"x")
    driver.produce(topics.FEEDBACK, 1, b"not for selection")
    driver.produce("models.knn.queries", 1, b"x")
    driver.run(0)

    read = {(record.topic, record.partition) for record in noted(driver, "selection").seen}
    assert read == {(topics.QUERIES, 2), (topics.MODEL_PREDICTIONS, 0), (topics.MODELS, 0)}
    assert noted(driver, "selection").starts == {0: 0, 1: 0, 2: 0}
    assert noted(driver, "worker.knn").starts == {0: 0, 1: 0}
    served = {(record.topic, record.partition) for record in noted(driver, "worker.knn").seen}
    assert served == {("models.knn.queries", 1), (topics.MODELS, 0)}


def test_a_role_without_an_operator_does_not_run() -> None:
    """What is written for it stays in its topic, as when nobody runs that model."""
    driver = Driver(build(["knn"]), {"joiner": Noting})
    driver.produce("models.knn.queries", 0, b"x")
    driver.run(1)

    assert len(driver.read("models.knn.queries")) == 1


def test_a_group_goes_on_from_what_it_has_committed() -> None:
    """After a crash only the records after the last commit are read again."""
    driver = Driver(build([], partitions=1), {"joiner": Noting}, [Crash(700_000, "joiner")])
    driver.produce(topics.FEEDBACK, 0, b"before the commit")
    driver.run(0.6)
    driver.produce(topics.FEEDBACK, 0, b"after it")
    driver.run(0.5)

    assert driver.committed("joiner", topics.FEEDBACK, 0) == 2
    assert [record.value for record in noted(driver, "joiner").seen] == [b"after it"]


def test_an_operator_that_nobody_runs_is_refused() -> None:
    """The error lists the roles that there are."""
    with pytest.raises(LookupError, match=r"no role worker\.svm; it has selection, worker\.knn, joiner"):
        Driver(build(["knn"]), {"worker.svm": Noting})


def test_a_topology_whose_records_would_not_meet_is_refused() -> None:
    """Equal partition counts are what joins stand on."""
    topology = build([])
    odd = replace(topology.topics[topics.FEEDBACK], partitions=3)
    with pytest.raises(ValueError, match="must be equal"):
        Driver(replace(topology, topics={**topology.topics, topics.FEEDBACK: odd}), {"joiner": Noting})


@pytest.mark.parametrize(("topic", "partition"), [("nowhere", 0), (topics.QUERIES, 4)])
def test_a_record_for_a_partition_that_is_not_there_is_refused(topic: str, partition: int) -> None:
    """A misspelt topic does not look like a loop that answers nothing."""
    with pytest.raises(LookupError, match=f"no partition {partition} of topic {topic}"):
        Driver(build([]), {}).produce(topic, partition, b"x")


def test_an_operator_may_write_only_what_the_topology_says() -> None:
    """The drawing, the rights and the checks are made from it, so it must be true."""
    emit = Emit(topics.QUERIES, 0, None, b"x")
    driver = Driver(build([]), {"joiner": lambda: Noting(lambda _record: [emit])})
    driver.produce(topics.FEEDBACK, 0, b"x")
    with pytest.raises(AssertionError, match="joiner is not said to write queries"):
        driver.run(0)


def test_an_operator_may_use_the_store_only_if_the_topology_says_so() -> None:
    """A joiner has no connection to it."""
    driver = Driver(build([]), {"joiner": lambda: Noting(lambda _record: [FetchStates(())])})
    driver.produce(topics.FEEDBACK, 0, b"x")
    with pytest.raises(AssertionError, match="joiner is not said to use the store"):
        driver.run(0)


@dataclass
class Polled(Noting):
    """Notes when it was given how many records, too."""

    polls: list[tuple[int, int]] = field(default_factory=list)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Note, and answer."""
        self.polls.append((now_us - START_US, len(records)))
        return super().on_records(records, now_us)


@pytest.mark.parametrize(
    ("every_us", "polls"),
    [(0, [(1_000, 1), (3_000, 1), (9_000, 1)]), (4_000, [(4_000, 2), (12_000, 1)]), (100_000, [(100_000, 3)])],
)
def test_the_records_of_one_poll_come_together(every_us: int, polls: list[tuple[int, int]]) -> None:
    """Each waits for the next poll, counted from the start; its timestamp is when it was written."""
    driver = Driver(build([], partitions=2), {"joiner": Polled}, pace=Pace(polls_us={"joiner": every_us}))
    for number, at_us in enumerate((1_000, 3_000, 9_000)):
        driver.run_until(START_US + at_us)
        driver.produce(topics.FEEDBACK, number % 2, b"x")
    driver.run(1)

    operator = driver.operator("joiner")
    assert isinstance(operator, Polled)
    assert operator.polls == polls
    assert sorted(record.timestamp_us - START_US for record in operator.seen) == [1_000, 3_000, 9_000]


def test_a_driver_that_keeps_nothing_lets_records_go_once_all_have_read_them() -> None:
    """Their offsets count on, and who listens has heard each."""
    heard: list[int] = []
    hears = {topics.PREDICTIONS: lambda record: heard.append(record.offset)}
    driver = Driver(build([], partitions=1), {"joiner": Noting}, pace=Pace(keeps=False), hears=hears)
    for _ in range(5):
        driver.produce(topics.PREDICTIONS, 0, b"x")
        driver.run(0.6)

    assert heard == [0, 1, 2, 3, 4]
    assert [record.offset for record in noted(driver, "joiner").seen] == heard
    assert driver.read(topics.PREDICTIONS) == []


def test_a_driver_that_keeps_nothing_has_no_faults() -> None:
    """A role that is started again would have nothing to read."""
    with pytest.raises(ValueError, match="keeps nothing"):
        Driver(build([], partitions=1), {"joiner": Noting}, [Crash(0, "joiner")], pace=Pace(keeps=False))


def test_time_starts_where_it_is_wanted() -> None:
    """A replay's own time, as its records have it."""
    driver = Driver(build([], partitions=1), {"joiner": Noting}, pace=Pace(start_us=5_000_000))
    driver.run(2)

    assert driver.now_us == 7_000_000


def test_a_record_is_on_its_way_and_dated_as_its_topic_says() -> None:
    """Feedback when it was sent, observations when they have come; another topic takes another time."""
    legs = {topics.FEEDBACK: 3_000, topics.OBSERVATIONS: 1_000}
    operators = {"joiner": Polled, "learner": Polled}
    driver = Driver(build([], partitions=1), operators, leg=lambda topic, _: legs.get(topic, 0))
    driver.produce(topics.FEEDBACK, 0, b"x")
    driver.produce(topics.OBSERVATIONS, 0, b"x")
    driver.run(0.0005)
    driver.produce(topics.FEEDBACK, 0, b"y")
    driver.produce(topics.PREDICTIONS, 0, b"z")
    driver.run(1)

    joiner, learner = driver.operator("joiner"), driver.operator("learner")
    assert isinstance(joiner, Polled)
    assert isinstance(learner, Polled)
    assert joiner.polls == [(500, 1), (3_000, 1), (3_500, 1)]
    assert [record.timestamp_us - START_US for record in joiner.seen] == [500, 0, 500]
    assert learner.polls == [(1_000, 1)]
    assert [record.timestamp_us - START_US for record in learner.seen] == [1_000]


def test_a_record_on_its_way_waits_for_the_next_poll() -> None:
    """Counted from the start, as one that is there at once."""
    pace = Pace(polls_us={"joiner": 4_000})
    driver = Driver(build([], partitions=1), {"joiner": Polled}, pace=pace, leg=lambda _, sent_us: sent_us % 1_000 + 1)
    for at_us in (1_000, 3_500, 4_500):
        driver.run_until(START_US + at_us)
        driver.produce(topics.FEEDBACK, 0, b"x")
    driver.run(1)

    operator = driver.operator("joiner")
    assert isinstance(operator, Polled)
    assert operator.polls == [(4_000, 1), (8_000, 2)]
