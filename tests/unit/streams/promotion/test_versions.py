"""Evidence on versions: what is compared with what."""

from __future__ import annotations

from itertools import islice

import pytest

from schemas.records import VersionLoss
from streams.promotion.versions import VersionEvidence
from tests.comparisons import canary, seen, shadow


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
