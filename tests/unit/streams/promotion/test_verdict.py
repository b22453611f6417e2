"""Verdicts: what follows from evidence, guards and plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import Candidate
from streams.promotion.evidence import Evidence
from streams.promotion.verdict import SPENT, Action, CandidateStage, Verdict, fault_of_plan, judge

PLAN = Candidate("version", "forest", "2", "1", 0, (0.0, 0.05, 0.25, 1.0), least=100, dwell_us=30_000_000)
LATER_US = 60_000_000


def evidence(**changes: object) -> Evidence:
    """Make evidence that allows anything; fields may be changed."""
    sound = Evidence(1_000, 1_000.0, 0.05, 0.01, 0.09, 0.05, 0.1)
    return replace(sound, **changes)  # type: ignore[arg-type]


def verdict(share: float, known: Evidence, now_us: int = LATER_US, **guards: float) -> Verdict:
    """Judge a candidate that is at a share since the beginning."""
    return judge(PLAN, CandidateStage(share, 0), known, now_us, guards)


def test_a_candidate_goes_from_step_to_step() -> None:
    """A shadow becomes a canary, a canary gets the next share."""
    assert [verdict(share, evidence()).share for share in (0.0, 0.05)] == [0.05, 0.25]


def test_the_last_step_is_a_promotion_and_needs_a_lower_bound_above_0() -> None:
    """Without it the candidate stays, and the reason says how much is missing."""
    assert verdict(0.25, evidence()).action is Action.PROMOTE
    found = verdict(0.25, evidence(lower=-0.01, missing=900))
    assert found.action is Action.STAY
    assert found.share == 0.25
    assert found.reason == ("not shown to be better yet, about 900 more comparisons needed")


def test_a_larger_share_waits_until_it_can_cost_little() -> None:
    """A share of 0.05 may be 0.2 worse at a risk of 0.01, one of 0.25 only 0.04."""
    unsure = evidence(lower=-0.1)
    assert verdict(0.0, unsure).action is Action.STEP
    assert verdict(0.05, unsure).action is Action.STAY


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 1.0])
def test_a_worse_candidate_goes_back_at_once_from_anywhere(share: float) -> None:
    """It does not wait for comparisons or time at its share."""
    found = verdict(share, evidence(difference=-0.05, lower=-0.09, upper=-0.01, pairs=7), now_us=0)
    assert found == Verdict(Action.BACK, 0.0, "it is worse")


def test_a_log_that_has_lost_its_beginning_does_not_hold_a_candidate_up() -> None:
    """Of fewer comparisons than there were at the step those that are there count, never less than none."""
    stage = CandidateStage(0.05, 0, pairs=5_000)
    found = judge(PLAN, stage, evidence(pairs=40), LATER_US)
    assert found.reason == "40 of 100 comparisons at this share"
    assert judge(PLAN, stage, evidence(pairs=400), LATER_US).action is Action.STEP


def test_a_candidate_that_has_surely_cost_its_budget_goes_back() -> None:
    """By the bound times its answers, however bad luck makes the plain sum look."""
    assert verdict(0.05, evidence(cost=5_000.0, answers=1_000.0)).action is Action.STEP
    found = verdict(0.05, evidence(lower=-0.09, upper=-0.0505, answers=1_000.0))
    assert found.action is Action.BACK
    assert "50.5 errors at least" in found.reason


def test_what_is_tolerated_is_not_worse_and_its_budget_bounds_it() -> None:
    """A plan that lets a version take over at a hundredth more does not take it back for half of that, but for 50."""
    plan, known = replace(PLAN, tolerance=0.01), evidence(lower=-0.009, upper=-0.005, answers=9_000.0)
    assert judge(plan, CandidateStage(1.0, 0), known, LATER_US).action is Action.STAY
    assert judge(plan, CandidateStage(1.0, 0), replace(known, answers=11_000.0), LATER_US).action is Action.BACK
    assert (
        judge(plan, CandidateStage(1.0, 0), replace(known, upper=-0.011, answers=9.0), LATER_US).reason == "it is worse"
    )


def test_a_guard_over_its_limit_sends_a_better_candidate_back() -> None:
    """A guard that has not been measured does nothing."""
    plan = replace(PLAN, limits={"failures": 0.02, "late": 0.1})
    for share in (0.0, 0.25, 1.0):
        stage = CandidateStage(share, 0)
        assert judge(plan, stage, evidence(), LATER_US, {"failures": 0.02}).action is not Action.BACK
        found = judge(plan, stage, evidence(), LATER_US, {"failures": 0.03})
        assert found.action is Action.BACK
        assert found.reason.startswith("failures 0.03 is over its limit of 0.02")


def test_the_loss_is_a_guard_of_its_own() -> None:
    """Its limit is absolute: a version that is better than a bad one may still be too bad."""
    plan = replace(PLAN, limits={"loss": 0.04})
    assert judge(plan, CandidateStage(0.25, 0), evidence(), LATER_US).action is Action.BACK


def test_a_candidate_stays_for_its_comparisons_and_its_time() -> None:
    """At each share anew."""
    assert (
        judge(PLAN, CandidateStage(0.05, 0, pairs=950), evidence(), LATER_US).reason
        == "50 of 100 comparisons at this share"
    )
    assert judge(PLAN, CandidateStage(0.05, 40_000_000), evidence(), LATER_US).reason == "20 of 30 s at this share"


def test_what_has_taken_over_stays() -> None:
    """Even while nothing is known yet."""
    assert verdict(1.0, Evidence()).action is Action.STAY


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"steps": ()}, "steps must be"),
        ({"steps": (0.5, 0.1, 1.0)}, "steps must be"),
        ({"steps": (0.1, 0.5)}, "the last step"),
        ({"holdback": 1.0}, "holdback"),
        ({"alpha": 0.0}, "alpha"),
        ({"limits": {"speed": 1.0}}, "there is no guard speed"),
        ({"budget": float("nan")}, "finite"),
    ],
)
def test_an_impossible_plan_is_told(changes: dict[str, object], fault: str) -> None:
    """And a possible one is not."""
    assert fault_of_plan(PLAN) == ""
    assert fault in fault_of_plan(replace(PLAN, **changes))  # type: ignore[arg-type]


def test_a_candidate_that_waits_for_people_who_all_have_been_counted_says_so() -> None:
    """Else it would wait for ever and nobody would know; one that goes on, back, or has taken over waits for nobody."""
    spent = evidence(is_spent=True)
    assert verdict(0.05, replace(spent, pairs=41)).reason == f"41 of 100 comparisons at this share; {SPENT}"
    assert verdict(0.25, replace(spent, lower=-0.01)).reason.endswith(SPENT)
    for found in (verdict(0.05, spent), verdict(1.0, spent), verdict(0.25, replace(spent, upper=-0.01))):
        assert SPENT not in found.reason
    assert SPENT not in verdict(0.05, evidence(pairs=41)).reason
