"""Evaluations of histories whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from deploy.evaluation.words import bounds
from policies import registry
from policies.estimators.errors import TooFewError
from policies.estimators.estimate import Estimate
from policies.lessons import Lesson
from schemas.codec import Codec
from schemas.records import Application, Observation, Observations, Prediction, Status
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.evaluation.evaluation import delay_of, evaluate
from streams.evaluation.history import KnownApplication, history
from streams.operators.contract import Record
from tests.histories import ARMS, MEANS, STEP_US, observation, served


def past(observations: tuple[Observation, ...], **more: object) -> KnownApplication:
    """Return them as a history that ended long ago."""
    return replace(KnownApplication("shop", observations, {}, 10**13, 60.0), **more)  # type: ignore[arg-type]


UNIFORM = served("epsilon_greedy(epsilon=1.0)", 4_000)


def test_always_the_best_model_costs_what_it_costs() -> None:
    """0.1 a query, where the uniform policy pays 0.33; and the sentence says so."""
    found = evaluate(past(UNIFORM), candidate("always:good"), 60.0)
    for name in ("replay", "ipw", "snipw", "dr", "dr_os", "switch", "dm"):
        each = found.estimates[name]
        assert isinstance(each, Estimate)
        assert each.low <= 0.1 <= each.high, each
    assert found.candidate.low <= 0.1 <= found.candidate.high
    assert found.difference.low <= 0.1 - 1 / 3 <= found.difference.high < 0.0
    assert "worth promoting" in found.recommendation
    assert found.effective == pytest.approx(4_000 / 3, rel=0.1)


def test_always_the_worst_model_is_not_recommended() -> None:
    """It costs more, and the sentence says keep."""
    assert "keep what serves" in evaluate(past(UNIFORM), candidate("always:bad"), 60.0).recommendation


def test_where_losses_have_a_unit_costs_are_told_in_it() -> None:
    """Of 1,000 queries; losses of another worth are put on the scale of the largest first."""
    priced = tuple(
        seen._replace(
            worth=20.0 * (1 + number % 2), losses=tuple([each and each / (1 + number % 2) for each in seen.losses])
        )
        for number, seen in enumerate(UNIFORM)
    )
    halved = tuple(seen._replace(losses=tuple([each and each / 2 for each in seen.losses])) for seen in UNIFORM)
    found = evaluate(past(priced, unit="EUR"), candidate("always:good"), 60.0)
    plain = evaluate(past(halved), candidate("always:good"), 60.0)
    assert (found.worth, plain.worth) == (40.0, None)
    assert found.candidate == pytest.approx(plain.candidate)
    less = -found.difference.mean * 40 * 1_000
    assert found.recommendation.endswith(f"That is {less:,.4g} EUR less per 1,000 queries.")
    told = dict(bounds(found))
    assert told["candidate, cost per 1,000"].startswith(f"{found.candidate.mean * 40_000:,.2f}, ")
    assert "That is" not in plain.recommendation


def test_weights_make_weighted_means() -> None:
    """A decision that weighs nothing beside the others changes nothing."""
    light = tuple(seen._replace(weight=1e-9 if number % 2 else 1.0) for number, seen in enumerate(UNIFORM))
    found, half = [evaluate(past(each), candidate("always:good"), 60.0) for each in (light, tuple(UNIFORM[::2]))]
    assert found.candidate.mean == pytest.approx(half.candidate.mean, rel=1e-6)
    assert found.served.mean == pytest.approx(half.served.mean, rel=1e-6)
    assert found.difference.mean == pytest.approx(half.difference.mean, rel=1e-6)
    assert found.course[-1].served == pytest.approx(found.served.mean)
    assert found.course[-1].difference == found.difference
    for name in ("ipw", "dr", "dm"):
        light_one, half_one = found.estimates[name], half.estimates[name]
        assert isinstance(light_one, Estimate)
        assert isinstance(half_one, Estimate)
        assert light_one.value == pytest.approx(half_one.value, rel=0.1)
        assert light_one.low <= light_one.value <= light_one.high


@pytest.mark.parametrize("weight", [1.0, 0.01])
def test_a_difference_in_the_unit_does_not_shrink_with_the_weights(weight: float) -> None:
    """Losses of 0.1 and 0.6 of 100 EUR each; one decision in a hundred is heavy, and the others are as light."""
    priced = tuple(
        seen._replace(worth=100.0, weight=None if number % 100 == 0 else weight)
        for number, seen in enumerate(served("epsilon_greedy(epsilon=1.0)", 4_000))
    )
    found = evaluate(past(priced, unit="EUR"), candidate("always:good"), 60.0, least=0.0)  # light ones tell little
    less = -found.difference.mean * 100 * 1_000
    assert less == pytest.approx(100_000 * (sum(MEANS) / 3 - MEANS[0]), rel=0.25)
    assert f"That is {less:,.4g} EUR less per 1,000 queries." in found.recommendation
    for mean, low, high in (found.served, found.candidate, found.difference):
        assert -1.0 <= low <= mean <= high <= 1.0


def test_a_policy_that_learns_along_has_its_own_propensities() -> None:
    """Its states are the fold of the same log; before the first feedback it does not know anything."""
    policy = candidate("exp3:eta=0.1")
    shares = policy.propensities(UNIFORM[:3], UNIFORM, ARMS)
    assert shares[0] == pytest.approx([1 / 3] * 3)
    own = registry.parse("exp3(eta=0.1)")
    first = UNIFORM[0].decision
    state = own.observe(own.init(3), 3, Lesson(first.chosen, first.propensities, UNIFORM[0].losses))
    assert shares[1] == pytest.approx(own.propensities(state, 3), rel=1e-12)


def test_the_policy_that_served_is_judged_to_cost_what_it_has_cost() -> None:
    """Its own fold gives its own propensities, so all weights are 1 but for what it learns at once."""
    log = served("thompson", 1_000)
    found = evaluate(past(log), candidate("thompson"), 60.0)
    each = found.estimates["ipw"]
    assert isinstance(each, Estimate)
    assert each.largest == pytest.approx(1.0)
    assert each.value == pytest.approx(found.served.mean)
    assert (found.difference.mean, "cannot be told" in found.recommendation) == (0.0, True)


def test_a_candidate_that_the_log_does_not_know_gets_no_recommendation() -> None:
    """Where the policy that served never asked a model."""
    log = tuple(
        observation(number, number % 2, [1.0 if arm == number % 2 else None for arm in range(3)], (0.5, 0.5, 0.0))
        for number in range(1_000)
    )
    found = evaluate(past(log), candidate("always:bad"), 60.0)
    assert found.unsupported == 1.0
    assert "knows nothing of 100%" in found.recommendation


def test_a_short_log_is_refused_by_every_estimator() -> None:
    """And the sentence says what is missing."""
    found = evaluate(past(UNIFORM[:90]), candidate("always:good"), 60.0)
    assert all(isinstance(found.estimates[name], TooFewError) for name in ("ipw", "snipw", "dr"))
    assert found.recommendation.startswith("No recommendation")


def test_a_difference_that_is_not_shown_needs_more_decisions_than_there_are() -> None:
    """The bound that has to pass 0 counts; here the other one is so near that half the width is less than the mean."""
    log = served("epsilon_greedy(epsilon=0.1)", 10_000)
    found = evaluate(past(log[:4_000]), candidate("always:good"), 60.0, least=0.0)
    mean, low, high = found.difference
    assert (high - low) / 2.0 < -mean < high - mean
    (said,) = re.findall(r"shows after about ([\d,]+) more decisions", found.recommendation)
    enough = round(1.25 * (found.decisions + int(said.replace(",", ""))))
    assert enough < 10_000
    assert "worth promoting" in evaluate(past(log[:enough]), candidate("always:good"), 60.0, least=0.0).recommendation


def test_only_decisions_whose_window_has_ended_are_judged() -> None:
    """Of those of the last minute only the quick feedback is known."""
    until_us = UNIFORM[-1].predicted_us
    found = evaluate(past(UNIFORM, until_us=until_us), candidate("always:good"), 60.0)
    assert (found.decisions, found.left_out["window not ended"]) == (3_940, 60)


def test_a_decision_without_a_known_loss_is_left_out() -> None:
    """A model that could not take the input, say."""
    blind = UNIFORM[7]._replace(losses=(None, None, None))
    found = evaluate(past((*UNIFORM[:7], blind, *UNIFORM[8:])), candidate("always:good"), 60.0)
    assert (found.decisions, found.left_out["loss not known"]) == (3_999, 1)


def test_where_all_models_were_asked_nothing_is_estimated() -> None:
    """An ensemble's log says what each model has cost: full information, and a difference known row by row."""
    random = np.random.default_rng(1)
    log = []
    for number in range(600):
        losses = tuple((random.random(3) < MEANS).astype(float).tolist())
        seen = observation(number, 0, losses, (1.0, 1.0, 1.0))
        log.append(seen._replace(decision=seen.decision._replace(chosen=(0, 1, 2)), loss=losses[2]))
    found = evaluate(past(tuple(log)), candidate("always:good"), 60.0)
    each = found.estimates["full_information"]
    assert isinstance(each, Estimate)
    assert each.value == pytest.approx(np.mean([seen.losses[0] for seen in log]))
    assert found.difference.high < 0.0


def test_models_that_come_and_go_are_columns_of_their_own() -> None:
    """A model that was added later was not to be had before: that part of the candidate is not known."""
    late = [seen._replace(decision=seen.decision._replace(arms=("new", "fair", "bad"))) for seen in UNIFORM[:1_000]]
    found = evaluate(past((*late, *UNIFORM[1_000:])), candidate("always:new"), 60.0)
    assert found.unsupported == pytest.approx(0.75)


def test_each_context_has_a_state_of_its_own() -> None:
    """A user of whom nothing is known starts from what all have taught."""
    log = [seen._replace(context="ann", decision=seen.decision._replace(state="shop/ann")) for seen in UNIFORM[:50]]
    first_of_bob = UNIFORM[50]._replace(context="bob", decision=UNIFORM[50].decision._replace(state="shop/bob"))
    shares = candidate("thompson").propensities([log[0], first_of_bob], [*log, first_of_bob], ARMS)
    assert shares[0] == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert shares[1][0] > shares[1][2]


@pytest.mark.parametrize("policy", ["timely", "ridge"])
def test_a_policy_that_goes_by_what_no_log_holds_is_refused(policy: str) -> None:
    """How long models take, or the features that they compute; replaying the queries has both."""
    with pytest.raises(EvaluationError, match="skysail replay"):
        candidate(policy)


def test_a_model_that_no_decision_could_ask_is_named() -> None:
    """With those that there are."""
    with pytest.raises(EvaluationError, match="good, fair, bad"):
        evaluate(past(UNIFORM), candidate("always:god"), 60.0)


def test_a_history_holds_each_query_once_and_what_still_waits() -> None:
    """From records of three topics; what cannot be decoded is passed over."""
    codec = Codec()
    made = Prediction("q-9", "shop", None, UNIFORM[0].decision, Status.COMPLETE, None, 1, 1.0, (), 0, 0, 0, 9 * STEP_US)
    known = made._replace(query_id="q-1")
    values = [
        ("observations", codec.encode(Observations(UNIFORM[:3]))),
        ("observations", codec.encode(UNIFORM[1])),
        ("observations", b"nonsense"),
        ("predictions", codec.encode(made)),
        ("predictions", codec.encode(known)),
        ("applications", codec.encode(Application("shop", ARMS, window_s=5.0))),
        ("observations", None),
    ]
    records = [Record(topic, 0, at, at * STEP_US, None, value) for at, (topic, value) in enumerate(values)]
    found = history(records, codec, None)
    assert found == KnownApplication("shop", UNIFORM[:3], {"q-9": 9 * STEP_US}, 5 * STEP_US, 5.0)
    assert history(records, codec, None, until_us=99 * STEP_US).until_us == 99 * STEP_US
    with pytest.raises(EvaluationError, match="there are: shop"):
        history(records, codec, "shoe")
    with pytest.raises(EvaluationError, match="any application"):
        history([], codec, None)


def test_windows_that_have_not_ended_are_waited_for() -> None:
    """The refusal says until when; the first query was asked at the first second of 1970."""
    young = past(UNIFORM[:3], until_us=UNIFORM[2].predicted_us)
    with pytest.raises(EvaluationError, match=r"of 600 s have not ended; wait until 00:1[01] UTC .* --window SECONDS"):
        evaluate(young, candidate("thompson"), 600.0)


def test_losses_that_nobody_knows_are_another_reason() -> None:
    """Waiting would not help."""
    silent = tuple(seen._replace(losses=(None, None, None)) for seen in UNIFORM[:3])
    with pytest.raises(EvaluationError, match="no loss is known of the 3 observations"):
        evaluate(past(silent), candidate("thompson"), 60.0)


def test_delays_count_what_waits_and_what_never_came() -> None:
    """Three with feedback after half a second, one silent for its window, one that still waits."""
    waiting = {"old": 0, "young": 95 * STEP_US}
    found = delay_of(replace(past(UNIFORM[:3]), predicted_us=waiting, until_us=100 * STEP_US), 60.0)
    assert (found.by(0.5), found.waiting) == (pytest.approx(0.6), 1)
