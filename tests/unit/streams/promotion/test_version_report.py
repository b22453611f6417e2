"""A test of two versions is read from its log: everybody counts, and how the draws went is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Measurement, MetricValue, WatchedMetric
from streams.promotion.lifecycle import comparison
from streams.promotion.version_report import VersionReading, lines
from tests.comparisons import DECISION, WINDOW_US, plan, seen

if TYPE_CHECKING:
    from schemas.records import Observation
    from streams.promotion.version_report import VersionReport

SLOW = WatchedMetric("digits", "latency", 500.0, "ms", 50.0)
MINUTE_US = 60_000_000


def drawn(who: str, losses: dict[str, float], draw: str = "/0") -> Observation:
    """Make an observation of somebody who has drawn."""
    return seen(who, losses)._replace(context=who, drawn=draw)


def report(*log: Observation, wanted: float | None = None) -> VersionReport:
    """Return what a log says, an observation a minute."""
    reading = VersionReading(plan(), WINDOW_US)
    for number, one in enumerate(log):
        reading.take(one, number * MINUTE_US)
    return reading.report(len(log) * MINUTE_US, wanted)


def test_who_asked_within_the_last_hour_counts_too() -> None:
    """By hand; a comparison that has to hold at any time still waits for both."""
    log = drawn("ann", {"2": 0.0}), drawn("ann", {"2": 0.5}), drawn("bob", {"1": 1.0})
    found = report(*log)
    assert (found.evidence.pairs, found.evidence.difference) == (1, 0.75)
    assert (found.candidate, found.incumbent, found.both, found.by_person, found.share) == (1, 1, 0, True, 0.5)
    waits = comparison(plan(), WINDOW_US)
    for one in log:
        waits.take(one, 0)
    assert (waits.evidence(0.05).pairs, waits.evidence(0.05).waiting) == (0, 2)
    waits.until(60 * MINUTE_US)
    assert (waits.evidence(0.05).pairs, waits.evidence(0.05).waiting) == (1, 0)


def test_a_draw_that_met_both_is_told_and_counts_for_the_first() -> None:
    """Not so somebody who has drawn anew."""
    log = drawn("ann", {"2": 0.0}), drawn("ann", {"1": 1.0}), drawn("bob", {"1": 1.0}), drawn("bob", {"2": 1.0}, "/1")
    found = report(*log)
    assert (found.candidate, found.incumbent, found.both) == (2, 2, 1)
    assert lines(plan(), found)[-1].startswith("1 met both under one draw, and count for the first")


def test_queries_that_draw_for_themselves_are_counted_by_query() -> None:
    """Those that a shadow saw, and those of other versions, belong to neither side."""
    log = seen("a", {"2": 0.0}), seen("b", {"1": 1.0}), seen("c", {"1": 1.0}), seen("d", {"1": 1.0, "2": 0.0})
    found = report(*log, seen("e", {"3": 0.0}))
    assert (found.candidate, found.incumbent, found.by_person) == (1, 2, False)
    assert lines(plan(), found)[0].split() == ["queries", "mean", "loss"]


def test_a_share_that_chance_does_not_explain_is_told() -> None:
    """One in ten was to meet the version, and half have; half were to, and half have."""
    log = [drawn(str(who), {"12"[who % 2]: 0.5}) for who in range(200)]
    assert "that is no chance" in lines(plan(), report(*log, wanted=0.1))[-1]
    assert lines(plan(), report(*log, wanted=0.5))[-1].endswith("of the draws met version 2; its share is 0.5")
    assert not report(*log).is_drawn_otherwise


def test_what_each_guardrail_says_is_told() -> None:
    """A metric that is much worse, and one that is much better."""
    for losses, said in (((0.0, 1.0), "holds"), ((1.0, 0.0), "is broken"), ((0.5, 0.5), "is not shown to hold")):
        reading = VersionReading(plan(metrics=(SLOW,)), WINDOW_US)
        for who in range(60):
            version, about = "21"[who % 2], (str(who), "digits", str(who), DECISION)
            reading.take(drawn(str(who), {version: 0.5}), 0)
            value = MetricValue("latency", 0.0, losses[who % 2])
            reading.measure(Measurement(*about, (value,), (f"forest@{version}",), drawn="/0"), 0)
        found = reading.report(MINUTE_US)
        assert found.verdicts == (f"its guardrail {said}",)
        assert any(line.endswith(f"its guardrail {said}") for line in lines(plan(), found))


def test_nothing_of_one_of_both_is_told() -> None:
    """Then nothing is compared."""
    assert lines(plan(), report(drawn("ann", {"2": 0.0}))) == [
        "nothing compares forest 2 with 1: no feedback is of both"
    ]
