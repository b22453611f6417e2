"""Freshness in virtual time: what the scenario finds is what the system under test is made to do."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.harness.wire import Arrival
from load.harness.workload import Rows
from load.results.results import Result
from load.scenarios.learning import freshness, freshness_tables
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    Observation,
    Observations,
    Prediction,
    Query,
    Status,
    Tensor,
)

CODEC = Codec()
ANSWER_US, FOLD_US = 3_000, 11_000  # from a query to its answer, from feedback to the state that it has taught
ROWS = Rows("digits", [Tensor.of(np.zeros(2, np.float32))], [7])


class Loop:
    """A system in virtual time, and the wire to it: time passes only while answers are waited for.

    Args:
        stale_us: states are read at the multiples of this time alone.
        stalls_us: the first wait at or after this time takes `stall_us` longer, as if the sender's core were away.
    """

    def __init__(self, stale_us: int, stalls_us: float = math.inf, stall_us: int = 0) -> None:
        self._stale_us, self._stalls_us, self._stall_us = stale_us, stalls_us, stall_us
        self._answers: list[tuple[int, bytes]] = []
        self.time_us = 1_700_000_000_000_000
        self.folded: list[str] = []
        self.told: list[tuple[str, int]] = []
        self.asked_us: list[int] = []

    def now_us(self) -> int:
        """Return the virtual time."""
        return self.time_us

    def produce(self, topic: str, _key: bytes, value: bytes) -> None:
        """Take a query or feedback now."""
        if topic == topics.FEEDBACK:
            self.folded.append(CODEC.decode(Feedback, value).query_id)
            self.told.append((self.folded[-1], self.time_us))
            return
        query = CODEC.decode(Query, value)
        self.asked_us.append(self.time_us)
        read_us = self.time_us // self._stale_us * self._stale_us
        version = bisect_right(self.told, read_us - FOLD_US, key=itemgetter(1))
        decision = Decision((0,), version, "digits", "exp3", ("a", "b"), (0.5, 0.5))
        answer = Prediction(query.query_id, "digits", None, decision, Status.COMPLETE, None, 7, 1.0, (), 1, 2, 3, 4)
        heapq.heappush(self._answers, (self.time_us + ANSWER_US, CODEC.encode(answer)))

    def values(self, timeout_s: float) -> list[bytes | None]:
        """Wait for the first answer, or until the time is up."""
        end_us = self.time_us + round(timeout_s * 1e6)
        if self._stalls_us <= self.time_us:
            self._stalls_us, end_us = math.inf, end_us + self._stall_us
            self.time_us = end_us
        self.time_us = max(self.time_us, min([end_us, *(at_us for at_us, _ in self._answers[:1])]))
        arrived: list[bytes | None] = []
        while self._answers and self._answers[0][0] <= self.time_us:
            arrived.append(heapq.heappop(self._answers)[1])
        return arrived


def listened(loop: Loop, offsets_us: list[int], seconds: float) -> tuple[freshness.Heard, list[float]]:
    """Return what is heard of a loop, and the age of each piece of feedback (us)."""
    heard = freshness.listen(loop, ROWS, offsets_us, seconds, loop.now_us)
    return heard, found(loop, heard).ages_us.tolist()


def found(loop: Loop, heard: freshness.Heard) -> freshness.Measured:
    """Return what the scenario makes of it; observations are written when feedback comes."""
    return freshness.measured(heard, dict(loop.told), freshness.versions(heard.taken))


@given(
    gaps_us=st.lists(st.integers(1, 60_000), min_size=1, max_size=60),
    stale_us=st.sampled_from((1, 7_000, 100_000, 1_000_000)),
)
def test_ages_are_those_that_the_system_is_made_to_have(gaps_us: list[int], stale_us: int) -> None:
    """Told, folded 11 ms later, read at the next multiple of the stale time, decided by the next query, answered."""
    loop, tail_us = Loop(stale_us), range(20_000, 2_200_000, 20_000)
    asked = list(accumulate(gaps_us))
    heard, ages = listened(loop, [*asked, *(asked[-1] + us for us in tail_us)], (asked[-1] + 1) / 1e6)
    expected = []
    for told_us in heard.told_us.values():
        read_us = -(-(told_us + FOLD_US) // stale_us) * stale_us
        expected.append(min(at_us for at_us in loop.asked_us if at_us >= read_us) + ANSWER_US - told_us)
    assert list(heard.told_us) == [name for name, _ in loop.told]
    assert ages == expected


@pytest.mark.parametrize(("stale_us", "p50_ms", "p99_ms"), [(1, 14, 14), (100_000, 64, 113), (1_000_000, 514, 1_004)])
def test_a_state_that_is_read_every_second_shows_as_such(stale_us: int, p50_ms: float, p99_ms: float) -> None:
    """Half a second in the middle, a second at worst; read all the time it is what folding and answering take."""
    loop = Loop(stale_us)
    heard, _ = listened(loop, list(range(0, 6_000_000, 1_000)), 4.0)
    row = found(loop, heard).row()
    assert row["p50_ms"] == pytest.approx(p50_ms, abs=1.5)
    assert row["p99_ms"] == pytest.approx(p99_ms, abs=1.5)
    assert (row["unseen"], row["sender_late_ms"], row["logged_p50_ms"]) == (0, 0.0, 0.0)


def test_what_the_sender_holds_up_counts_from_when_it_was_meant_to_be_written() -> None:
    """All that was due in the first 265 of 300 ms is older than 50, and what waited to be decided then, for 14 ms."""
    loop = Loop(1)
    loop._stalls_us, loop._stall_us = loop.time_us + 1_000_000, 300_000
    heard, ages = listened(loop, list(range(0, 3_000_000, 1_000)), 2.0)
    assert max(ages) > 300_000
    assert heard.late_us == pytest.approx(300_000, abs=2_000)
    assert sum(age > 50_000 for age in ages) == pytest.approx(265 + 14, abs=2)


def test_feedback_that_decides_nothing_is_not_left_out() -> None:
    """It is folded and no query comes, or it is not folded at all: no quantile is any better for that."""
    told = {"a": 100, "b": 200, "c": 300}
    assert freshness.ages_us(told, ["x", "a", "b"], [(150, 1), (400, 2), (500, 1)]) == [300, math.inf, math.inf]
    folded = {"a": 150, "b": 1_200}
    assert freshness.measured(freshness.Heard(told), folded, []).row() == {
        "p50_ms": math.inf,
        "p99_ms": math.inf,
        "logged_p50_ms": 1.0,
        "unseen": 3,
        "defaults": 0,
        "sender_late_ms": 0.0,
    }


def test_feedback_on_a_query_that_no_model_has_answered_is_counted_apart() -> None:
    """It teaches nothing, if it is not in the log; if it is, it has to decide like any other."""
    decision = Decision((0,), 0, "digits", "exp3", ("a",), (1.0,))
    given = {"a": Status.DEFAULT, "b": Status.DEFAULT, "c": Status.COMPLETE}
    answers = [
        Prediction(name, "digits", None, decision, status, None, 7, 1.0, (), 1, 2, 3, 4)
        for name, status in given.items()
    ]
    heard = freshness.Heard(dict.fromkeys(given, 100), [(200, CODEC.encode(each)) for each in answers])
    measured = freshness.measured(heard, {"b": 150}, freshness.versions(heard.taken))
    assert (measured.row()["defaults"], measured.row()["unseen"]) == (2, 2)
    assert len(measured.ages_us) == 2


def test_what_decides_in_a_later_stretch_is_old_and_not_lost() -> None:
    """The answers of all stretches tell, in the order in which they were read."""
    heard = freshness.Heard({"a": 100})
    assert freshness.measured(heard, {"a": 150}, [(300, 0), (9_100, 1)]).ages_us.tolist() == [9_000]


def test_the_first_state_that_has_folded_it_counts() -> None:
    """A later answer by an earlier state, from another partition, takes nothing back."""
    told, seen = {"a": 0, "b": 5}, [(10, 0), (20, 1), (30, 0), (40, 2), (50, 2)]
    assert freshness.ages_us(told, ["a", "b"], seen) == [20, 35]


def test_the_order_is_that_of_one_partition_and_a_copy_folds_once() -> None:
    """A record holds several observations; in two partitions they have no order."""
    decision = Decision((0,), 0, "digits", "exp3", ("a",), (1.0,))
    a, b, c = (
        Observation(name, "digits", None, decision, (0.0,), 0.0, 7, JoinStatus.JOINED, 1, 2) for name in ("a", "b", "c")
    )
    records = (((a, b), 3), ((a,), 3), ((c, b), 3), ((c,), 1))
    log = [
        Arrival(topics.OBSERVATIONS, partition, number * 1_000, b"digits", CODEC.encode(Observations(items)))
        for number, (items, partition) in enumerate(records)
    ]
    assert list(freshness.order(log[:3]).items()) == [("a", 0), ("b", 0), ("c", 2_000)]
    assert freshness.order([]) == {}
    with pytest.raises(ValueError, match="2 partitions"):
        freshness.order(log)


def result(*, unseen: int = 0) -> Result:
    """Return three rounds at each rate; of each hundredth of the last one's feedback so much was never seen."""
    rows = [
        {
            "rate_per_s": rate,
            "p50_ms": ms,
            "p99_ms": 3 * ms,
            "unseen": 1,
            "defaults": 0,
            "sender_late_ms": ms,
            "logged_p50_ms": ms,
        }
        for rate in freshness.RATES
        for ms in (40.0, 60.0, 50.0)
    ]
    ages = np.array([*range(100_000, 10_000_000, 100_000), *[math.inf] * unseen])
    shares = freshness.shares([(rate, ages) for rate in freshness.RATES])
    return Result("freshness", freshness.figures(rows), {"form": "full"}, {"rounds": rows, "ages": shares})


def test_the_table_has_medians_and_the_range_of_the_rounds() -> None:
    """Figures are medians; counts are of all rounds."""
    figures = result().figures
    assert (figures["at_100_p50_ms"], figures["at_100_p99_ms"], figures["at_100_unseen"]) == (50, 150, 3)
    assert set(figures) <= {figure.name for figure in freshness.FIGURES}
    [table] = freshness_tables.tables(result())
    assert table.rows[0] == ("100", "50 (40 to 60)", "150 (120 to 180)", "50 (40 to 60)", "3", "0", "60.0")


def test_the_page_has_the_table_the_picture_and_what_is_missed() -> None:
    """Three kinds of feedback were never seen."""
    machine: Any = {"cores_usable": 2, "processor": "some processor", "broker": "Kafka", "load_average": [0.5, 0, 0]}
    text = freshness_tables.SCENARIO.written(result(), machine)
    assert "| 1,000 | 50 (40 to 60) | 150 (120 to 180) | 50 (40 to 60) | 3 | 0 | 60.0 |" in text
    assert "- Target missed: at_100_unseen is 3, and should be == 0." in text
    assert list(freshness_tables.plots(result())) == ["freshness.png"]
    assert "](freshness.png)" in text


def test_the_picture_ends_where_feedback_was_never_seen_to_decide() -> None:
    """A fifth of it was not."""
    shares = [row["share"] for row in result(unseen=25).series["ages"] if row["rate_per_s"] == 100]
    assert max(shares) == pytest.approx(0.79)
    assert max(row["share"] for row in result().series["ages"]) == 0.99
