"""Evidence on versions: what is compared with what."""

from __future__ import annotations

from itertools import islice

import pytest

from schemas.records import TeachingBound, VersionLoss
from streams.operators.learn.bounds import MINUTE_US
from streams.promotion.verdict import Action, CandidateStage, judge
from streams.promotion.versions import VersionEvidence
from tests.comparisons import canary, plan, seen, shadow


def forest(application: str = "") -> VersionEvidence:
    """Compare version 2 of forest with version 1."""
    return VersionEvidence("forest", "2", "1", application)


def test_a_shadow_is_compared_query_by_query() -> None:
    """It has cost nothing, as it has answered nothing."""
    fold = forest()
    for number, (its, mine) in enumerate([(1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (1.0, 0.0)]):
        fold.take(seen(f"q{number}", {"1": its, "2": mine}))
    found = fold.evidence(0.05)
    assert (found.pairs, found.difference, found.cost) == (4, 0.5, 0.0)
    assert (found.candidate_loss, found.incumbent_loss) == (0.25, 0.75)


def test_a_canary_is_compared_run_by_run() -> None:
    """The means of a run are compared as soon as both have answered in it; a wrong answer of the canary costs."""
    fold = forest()
    for number, losses in enumerate([{"1": 0.0}, {"1": 1.0}, {"1": 0.0}, {"1": 0.0}, {"2": 1.0}]):
        assert fold.evidence(0.05).pairs == 0
        fold.take(seen(f"q{number}", losses))
    found = fold.evidence(0.05)
    assert (found.pairs, found.difference, found.cost) == (1, -0.75, 0.75)


def test_what_a_run_cost_counts_every_answer_in_it() -> None:
    """Four answers of the canary, half of them wrong, where the incumbent is right: two errors, not a half."""
    fold = forest()
    for number, losses in enumerate([{"2": 1.0}, {"2": 0.0}, {"2": 1.0}, {"2": 0.0}, {"1": 0.0}]):
        fold.take(seen(f"q{number}", losses))
    found = fold.evidence(0.05)
    assert (found.pairs, found.difference, found.cost, found.answers) == (1, -0.5, 2.0, 4.0)


def test_one_teacher_moves_a_comparison_no_further_than_he_may_teach() -> None:
    """Beyond his bound of a minute nothing counts; what others tell does, and the next minute is another one."""
    fold = forest()
    for minute, teacher, count, pairs in ((1, "foe", 100, 5), (1, "web", 3, 8), (2, "foe", 100, 13)):
        for number in range(count):
            told = seen(f"q{minute}{teacher}{number}", {"1": 0.0, "2": 1.0})
            fold.take(told._replace(bound=TeachingBound(teacher, 5, 0)), minute * MINUTE_US)
        assert fold.evidence(0.05).pairs == pairs


def test_the_least_cost_is_that_of_all_answers_at_the_bound() -> None:
    """Never more than what is true, here 0.3 a query: at all times in each of 20 runs at two shares."""
    for share in (0.5, 0.9):
        for seed in range(20):
            fold, answers = forest(), 0
            for number, observation in enumerate(islice(canary(seed, share, 0.5, 0.2), 2_000), 1):
                fold.take(observation)
                answers += observation.versions[0].version == "2"
                if number % 500 == 0:
                    found = fold.evidence(0.05)
                    assert found.least_cost == found.answers * max(0.0, -found.upper)
                    assert found.least_cost <= 0.3 * answers
            assert fold.evidence(0.05).least_cost > 20.0


WATCH = 100, 0.05
BUDGET = 50.0


def back_after(seed: int, share: float, candidate: float, incumbent: float, most: int) -> int | None:
    """Return after how many answers a version that has taken over goes back; None = it stays."""
    fold, promoted = VersionEvidence("forest", "2", "1", watch=WATCH), CandidateStage(1.0, 0)
    for number, observation in enumerate(islice(canary(seed, share, candidate, incumbent), most), 1):
        fold.take(observation)
        if number % 200 == 0 and judge(plan(budget=BUDGET), promoted, fold.evidence(0.05), 0).action is Action.BACK:
            return number
    return None


@pytest.mark.parametrize(("share", "candidate"), [(0.95, 0.13), (0.99, 0.13)])
def test_a_better_version_that_has_taken_over_stays(share: float, candidate: float) -> None:
    """In each of 15 runs: few answers of the incumbent against many are noise, which cost nobody anything."""
    assert [back_after(seed, share, candidate, 0.15, 6_000) for seed in range(15)] == [None] * 15


@pytest.mark.parametrize(("share", "candidate", "most"), [(0.5, 0.35, 3_000), (0.95, 0.4, 12_000), (0.99, 0.6, 16_000)])
def test_a_worse_version_that_has_taken_over_goes_back(share: float, candidate: float, most: int) -> None:
    """In each of 15 runs, the sooner the worse it is."""
    assert None not in [back_after(seed, share, candidate, 0.15, most) for seed in range(15)]


def test_a_shadow_that_is_not_heard_of_is_left_out_and_counted() -> None:
    """Where it has answered before; until then it may not have been loaded."""
    fold = forest()
    for number, losses in enumerate([{"1": 0.0}, {"1": 0.0, "2": 1.0}, {"1": 0.0}, {"1": 1.0}, {"1": 0.0, "2": 1.0}]):
        fold.take(seen(f"q{number}", losses))
    assert (fold.evidence(0.05).pairs, fold.evidence(0.05).left_out) == (2, 2)
    fold.take(seen("next", {"1": 0.0}))
    assert fold.evidence(0.05).left_out == 3
    fold.take(seen("a canary now", {"2": 0.0}))
    found = fold.evidence(0.05)
    assert (found.pairs, found.left_out) == (3, 2)


def test_a_version_that_nobody_has_loaded_yet_costs_no_evidence() -> None:
    """While only the incumbent answers nothing is compared, however large the share is meant to be."""
    fold = forest()
    for number in range(50):
        fold.take(seen(f"q{number}", {"1": 1.0}))
    assert fold.evidence(0.05).pairs == 0


def test_other_models_and_versions_change_nothing() -> None:
    """They are of no interest."""
    fold = forest()
    fold.take(seen("q", {"1": 1.0, "2": 0.0}))
    fold.take(seen("other", {"3": 1.0}))
    fold.take(seen("r", {})._replace(versions=(VersionLoss("tree", "2", 1.0), VersionLoss("tree", "1", 0.0))))
    assert fold.evidence(0.05).pairs == 1


def test_applications_are_compared_apart_and_added_up() -> None:
    """The losses of one are not compared with those of another, whose queries may be harder."""
    fold, one = forest(), forest("easy")
    for number in range(10):
        for application, losses in (("easy", {"1": 0.0}), ("hard", {"2": 1.0})):
            fold.take(seen(f"{application}{number}", losses, application))
            one.take(seen(f"{application}{number}", losses, application))
    assert fold.evidence(0.05).pairs == 0
    assert (fold.applications, one.applications) == (("easy", "hard"), ("easy",))


def test_the_missing_number_of_comparisons_is_about_right() -> None:
    """What is said after 100 comparisons is what it takes, within a factor of two."""
    fold = forest()
    log = shadow(3, 0.15, 0.25)
    for observation in islice(log, 100):
        fold.take(observation)
    said = fold.evidence(0.05)
    assert said.missing is not None
    assert said.missing > 0
    pairs = 100
    while not fold.evidence(0.05).is_better:
        fold.take(next(log))
        pairs += 1
    assert 0.5 < (100 + said.missing) / pairs < 2.0


def test_nothing_is_promised_to_what_is_no_better() -> None:
    """However many comparisons came, they would not show what is not there."""
    fold = forest()
    for observation in islice(shadow(1, 0.3, 0.2), 200):
        fold.take(observation)
    assert fold.evidence(0.05).missing is None


def test_hard_queries_while_the_share_is_large_do_not_speak_against_the_canary() -> None:
    """Means over everything would: the better version has seen most of the hard queries."""
    fold = forest()
    for seed, share, candidate, incumbent in ((1, 0.05, 0.05, 0.1), (2, 0.8, 0.5, 0.55)):
        for observation in islice(canary(seed, share, candidate, incumbent), 12_000):
            fold.take(observation)
    found = fold.evidence(0.05)
    assert found.candidate_loss is not None
    assert found.incumbent_loss is not None
    assert found.candidate_loss > found.incumbent_loss + 0.1
    assert found.difference == pytest.approx(0.05, abs=0.03)


def test_losses_out_of_their_range_tell_nothing() -> None:
    """Anybody may write observations; one loss of 1e300 would hide all others for good."""
    fold, other = forest(), forest()
    for number, observation in enumerate(islice(shadow(1, 0.1, 0.3), 300)):
        fold.take(observation)
        other.take(observation)
        if number == 10:
            other.take(seen("huge", {"1": 1e300, "2": -5.0}))
    assert other.evidence(0.05) == fold.evidence(0.05)
