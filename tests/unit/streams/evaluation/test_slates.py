"""What another ranking would have earned: by the rankings that were drawn in a loop in virtual time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from deploy.evaluation.slates import story
from policies import registry
from policies.errors import PolicyError
from policies.estimators.errors import TooFewError
from policies.estimators.estimate import Estimate
from policies.ridge import Ridge
from schemas import topics
from schemas.records import Feedback, Prediction, Tensor
from schemas.told import as_places
from streams.evaluation.errors import EvaluationError
from streams.evaluation.history import KnownApplication
from streams.evaluation.slates import SlateEvaluation, evaluate_slates, ranking_policy
from streams.operators.configuration import check_ranking
from streams.operators.learn.fold import fold
from tests.loops import CODEC, Loop, digits
from tests.unit.streams.operators.test_answering import computed, rated

ROWS = Tensor.of(np.array([[0.0], [1.0], [2.0], [3.0]]))
SEEN = (1.0, 0.5)
ALIKE, BEST = Ridge(features=1, low=-5.0, high=5.0, gamma=1.0), Ridge(features=1, low=-5.0, high=5.0, gamma=0.0)


@cache
def shown(shuffle: float, rounds: int = 150) -> Loop:
    """Return a loop in which a candidate earns its number at the first place, and half of it at the second."""
    parameters = {"features": 1.0, "low": -5.0, "high": 5.0}
    application = rated(
        parameters=parameters, examination=SEEN, shuffle=shuffle, per_context=False, span=10.0, window_s=20.0
    )
    loop = Loop({"items": computed}, application)
    for _ in range(rounds):
        query_id = loop.query(candidates=ROWS, top=2)
        loop.driver.run(0.2)
        answer = loop.answer(query_id).answer
        assert isinstance(answer, Tensor)
        places = [
            {"position": at, "label": float(number) * SEEN[at]} for at, number in enumerate(answer.numpy().tolist())
        ]
        record = Feedback(query_id, sent_us=loop.driver.now_us, places=as_places(places))
        loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(record), query_id.encode())
        loop.driver.run(0.3)
    loop.driver.run(30)
    return loop


def history(loop: Loop) -> KnownApplication:
    """Return what the loop's log says."""
    log = tuple([seen for _, seen in loop.observations()])
    return KnownApplication("digits", log, {}, loop.driver.now_us, 20.0)


def estimates(found: SlateEvaluation) -> tuple[Estimate, Estimate]:
    """Return those by place and as a whole, where none is refused."""
    per_place, whole = found.estimates["per_place"], found.estimates["pseudo_inverse"]
    assert isinstance(per_place, Estimate)
    assert isinstance(whole, Estimate)
    return per_place, whole


def predictions(loop: Loop) -> list[Prediction]:
    """Return the rankings."""
    return [found for found in loop.predictions() if found.first]


def test_a_share_of_the_rankings_is_drawn_evenly_and_says_so() -> None:
    """Every place has each candidate about as often; `first` is the probability of what was shown."""
    found = [made.ranked for made in predictions(shown(0.5)) if made.ranked is not None]
    drawn = [ranked.drawn for ranked in found if ranked.drawn]
    assert len(drawn) / len(found) == pytest.approx(0.5, abs=0.1)
    for place in (0, 1):
        counts = np.bincount([slate[place] for slate in drawn], minlength=4)
        assert counts.min() > len(drawn) / 10
    assert all(len({*slate}) == 2 for slate in drawn)
    for made in predictions(shown(0.5)):
        assert sum(made.first) == pytest.approx(1.0)
        assert min(made.first) >= 0.5 / 4


def test_the_log_of_a_drawn_ranking_has_what_another_one_goes_by() -> None:
    """Its places and the candidates' features; of others the features stay out of the log. States are its fold."""
    loop = shown(0.5)
    for _, seen in loop.observations():
        assert seen.ranked is not None
        assert (seen.ranked.rows is not None) == bool(seen.ranked.drawn)
        if seen.ranked.drawn:
            assert seen.ranked.drawn[0] == seen.ranked.place
    assert {key.name: state for key, state in loop.driver.store.states.items()} == fold(
        loop.observations(), 130_000_000
    )


def test_what_the_best_ranking_earns_is_found_from_drawn_ones() -> None:
    """It shows 3 and then 2, which earn 3 + 2 / 2; both estimators are within three standard errors."""
    found = evaluate_slates(history(shown(0.5)), BEST, 20.0, least=0.0)
    assert found.drawn < found.rankings
    per_place, pseudo_inverse = estimates(found)
    for each in (per_place, pseudo_inverse):
        assert abs(each.value - 4.0) < 3.0 * each.error
        assert each.low < each.value < each.high
    assert found.served is not None
    assert per_place.error < pseudo_inverse.error
    assert found.served == pytest.approx(4.0, abs=0.4)


def test_a_worse_ranking_is_found_to_be_worse() -> None:
    """One whose first is any candidate earns less."""
    worse, better = [estimates(evaluate_slates(history(shown(0.5)), one, 20.0, least=0.0))[0] for one in (ALIKE, BEST)]
    assert worse.value < better.value


def test_an_estimate_of_few_effective_samples_is_refused() -> None:
    """Each by its own weights: the whole ranking is alike more seldom than a place, and does not spoil its interval."""
    everything = evaluate_slates(history(shown(0.5)), BEST, 20.0, least=0.0)
    per_place, pseudo_inverse = estimates(everything)
    assert pseudo_inverse.effective < 15.0 < per_place.effective < 200.0
    some = evaluate_slates(history(shown(0.5)), BEST, 20.0, least=15.0).estimates
    assert some["per_place"] == per_place
    refused = some["pseudo_inverse"]
    assert isinstance(refused, TooFewError)
    assert (refused.effective, refused.needed) == (pseudo_inverse.effective, 15.0)
    usual = evaluate_slates(history(shown(0.5)), BEST, 20.0).estimates.values()
    assert [type(each) for each in usual] == [TooFewError, TooFewError]


def test_a_log_without_drawn_rankings_is_refused() -> None:
    """It cannot tell; the message says what to set."""
    with pytest.raises(EvaluationError, match="set `shuffle`"):
        evaluate_slates(history(shown(0.0, rounds=3)), BEST, 20.0)
    with pytest.raises(EvaluationError, match="candidates of 1 features"):
        evaluate_slates(history(shown(0.5)), Ridge(features=3), 20.0)


def test_policies_that_rank_rows_are_judged_by_rankings() -> None:
    """Others are judged as they were."""
    assert ranking_policy("ridge:features=3") == Ridge(features=3)
    assert ranking_policy("thompson") is None
    assert ranking_policy("always:good") is None
    assert ranking_policy("two_speed:items=3") is None


def test_shuffle_is_for_rankings_of_which_all_places_teach() -> None:
    """Others are refused."""
    for application in (digits(shuffle=0.1), rated(shuffle=0.1)):
        with pytest.raises(PolicyError, match="shuffle is for rankings"):
            check_ranking(application, registry.policy_of(application))


def test_without_the_setting_nothing_is_drawn() -> None:
    """Nor are features in the log."""
    found = [seen.ranked for _, seen in shown(0.0, 3).observations()]
    assert len(found) == 3
    assert [(ranked.drawn, ranked.rows) for ranked in found if ranked is not None] == [((), None)] * 3


@pytest.mark.parametrize(("default_loss", "is_of_told"), [(None, True), (1.0, False)])
def test_a_log_without_rankings_that_nobody_has_clicked_says_so(default_loss: float | None, is_of_told: bool) -> None:
    """Of two rankings one has a click, which earns 1: it is what is earned a ranking, or half of it."""
    parameters = {"features": 1.0, "low": -5.0, "high": 5.0}
    application = rated(
        parameters=parameters, examination=SEEN, shuffle=0.5, per_context=False, span=10.0, window_s=20.0,
        default_loss=default_loss,
    )  # fmt: skip
    loop = Loop({"items": computed}, application)
    for number in range(40):
        query_id = loop.query(candidates=ROWS, top=2)
        loop.driver.run(0.2)
        if number % 2:
            loop.feedback(query_id, 1.0)
        loop.driver.run(0.2)
    loop.driver.run(60)
    log = tuple([seen for _, seen in loop.observations()])
    silent = {made.query_id: made.answered_us for made in loop.predictions()}
    for seen in log:
        silent.pop(seen.query_id)
    past = KnownApplication("digits", log, silent, loop.driver.now_us, 20.0)
    for read in (past, replace(past, predicted_us=None)):
        found = evaluate_slates(read, BEST, 20.0)
        assert found.is_of_told is is_of_told
        assert found.served == pytest.approx(1.0 if is_of_told else 0.5, abs=0.2)
        assert ("set `default_loss`" in " ".join(story(found))) is is_of_told
    assert not evaluate_slates(replace(past, predicted_us={}), BEST, 20.0).is_of_told
