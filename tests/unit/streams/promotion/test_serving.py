"""What serving policies cost: whose answers count, and how their mean is kept over time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas.records import Decision, JoinStatus, Observation
from streams.promotion.serving_losses import MOST, ServingLosses
from streams.promotion.trail import MOST as MOMENTS
from streams.promotion.trail import Trail
from streams.topology import held_out_state
from tests.comparisons import SECOND_US


def answer(loss: float | None, policy: str = "exp3()", predicted_us: int = 1, name: str = "app") -> Observation:
    """Make the observation of an answer that cost so much."""
    decision = Decision((0,), 0, name, policy, ("one", "other"), (0.7, 0.3))
    return Observation("q", name, None, decision, (loss, None), loss, None, JoinStatus.JOINED, predicted_us, 0)


def test_the_mean_is_that_of_the_answers_whose_loss_is_known() -> None:
    """What is no loss does not count."""
    serving = ServingLosses()
    for loss in (1.0, 0.0, None, 0.5, float("nan"), 7.0):
        serving.observe(answer(loss), SECOND_US)
    served = serving.applications["app"]
    assert (served.losses.count, served.losses.mean) == (3, 0.5)
    assert served.is_judged


def test_another_policy_begins_anew_and_late_feedback_of_the_one_before_does_not_count() -> None:
    """A policy's mean is of its own answers."""
    serving = ServingLosses()
    serving.observe(answer(1.0, "exp3()", predicted_us=10), SECOND_US)
    serving.observe(answer(0.0, "thompson()", predicted_us=20), SECOND_US)
    serving.observe(answer(1.0, "exp3()", predicted_us=15), SECOND_US)
    served = serving.applications["app"]
    assert (served.policy, served.since_us, served.losses.count, served.losses.mean) == ("thompson()", 20, 1, 0.0)


def test_those_who_are_held_out_are_no_answers_of_the_policy() -> None:
    """Their decisions name another one, between its own: its mean does not begin anew."""
    serving = ServingLosses()
    for number in range(10):
        serving.observe(answer(0.25, "exp3()", predicted_us=2 * number), SECOND_US)
        other = answer(1.0, "single(arm=0)", predicted_us=2 * number + 1)
        held_out = other.decision._replace(state=held_out_state("app"))
        serving.observe(other._replace(decision=held_out), SECOND_US)
    served = serving.applications["app"]
    assert (served.policy, served.losses.count, served.losses.mean) == ("exp3()", 10, 0.25)


def test_the_number_of_applications_is_bounded() -> None:
    """Those heard of longest ago go first."""
    serving = ServingLosses()
    for number in range(MOST + 10):
        serving.observe(answer(0.0, name=f"app{number}"), SECOND_US)
        serving.observe(answer(0.0, name="busy"), SECOND_US)
    assert len(serving.applications) == MOST
    assert "busy" in serving.applications
    assert "app0" not in serving.applications


@pytest.mark.parametrize("seconds", [100, 10_000, 100_000])
def test_moments_are_bounded_and_spread_over_all_the_time(seconds: int) -> None:
    """About equally far apart, from the first minutes to days."""
    trail = Trail()
    for second in range(0, seconds, 2):
        if trail.is_due(second * SECOND_US):
            trail.add(second * SECOND_US, 0.5, 0.4, 0.6)
    times = [moment.time_us for moment in trail.moments]
    gaps = [after - before for before, after in pairwise(times)]
    assert 45 <= len(times) < MOMENTS
    assert max(gaps) <= 2 * min(gaps)
    assert seconds * SECOND_US - times[-1] <= 2 * max(gaps)
