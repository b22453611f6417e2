"""What a cascade asks, and what it learns, worked out by hand."""

from __future__ import annotations

from collections import deque
from math import exp, log
from random import Random

import numpy as np
import pytest

from policies import risk
from policies.cascade import Cascade, Doubts
from policies.confidence import confidence_of
from policies.errors import PolicyError
from policies.estimators.importance import ipw
from policies.estimators.log import Log
from policies.lessons import Lesson
from policies.pacing import payable, place_for, risen
from policies.risk import CELLS, capital, cell, confidence_at, lowest_held, place
from schemas.records import ModelOutput, Outcome, Step, Tensor

NOTHING = [0.0] * CELLS


def output(label: int | str, *scores: float, outcome: Outcome = Outcome.OK) -> ModelOutput:
    """Make an output with scores, if there are any."""
    return ModelOutput("m", "1", outcome, label, Tensor.of(np.array(scores)) if scores else None)


def step(confidence: float, outcome: str = "asked", arm: int = 1) -> Step:
    """Make a step after an answer of that confidence."""
    return Step("escalate", (arm,), 0, 1.0, outcome, confidence)


def test_the_confidence_of_one_model_is_its_best_score() -> None:
    """Scores that are no probabilities go through a softmax; without any the confidence is not known."""
    assert confidence_of([output(1, 0.25, 0.75)]) == 0.75
    assert confidence_of([output(1, 0.0, log(3.0))]) == pytest.approx(0.75)
    assert confidence_of([output(1)]) is None
    assert confidence_of([output(1, 0.25, 0.75, outcome=Outcome.FAILED)]) == 0.0
    assert confidence_of([None]) == 0.0


def test_two_models_are_sure_where_they_agree() -> None:
    """As sure as the less sure of both, if they say."""
    assert confidence_of([output("cat"), output("cat")]) == 1.0
    assert confidence_of([output("cat"), output("dog")]) == 0.0
    assert confidence_of([output(1, 0.1, 0.9), output(1, 0.4, 0.6)]) == 0.6
    assert confidence_of([output("cat"), None]) == 0.0


def test_cells_are_eighths_of_a_decade_of_doubt() -> None:
    """Doubt 1 stands at 0, doubt 0.1 at 8, doubt 10^-4 and less at the end."""
    assert place(0.0) == 0.0
    assert place(0.9) == pytest.approx(8.0)
    assert place(1.0) == place(1.0 - 1e-9) == float(CELLS)
    assert cell(1.0) == CELLS - 1
    assert [round(confidence_at(at), 4) for at in (0.0, 8.0, 16.0)] == [0.0, 0.9, 0.99]


def test_the_capital_is_what_bets_on_smaller_means_have_won() -> None:
    """Ten answers without a cost, against a mean of one half: each bet on a rate p has won (1 - p)^10 / 2^-10."""
    rates = [(number + 0.5) / 32 for number in range(16)]
    assert exp(capital(0.0, 10.0, 0.5)) == pytest.approx(sum((1 - rate) ** 10 * 2**10 for rate in rates) / 16)
    assert capital(0.0, 1.0, 0.0) == -np.inf


def test_the_lowest_cell_that_holds_the_risk_is_found_from_above() -> None:
    """A thousand sure answers without a loss, a thousand doubtful ones of which a tenth is wrong: risk 0.05 of all."""
    counts, wrong = [*NOTHING], [*NOTHING]
    counts[20], counts[2], wrong[2] = 1_000.0, 1_000.0, 300.0
    assert lowest_held(counts, wrong, 0.01, 0.05) == 3
    assert lowest_held(counts, wrong, 0.2, 0.05) == 0
    assert lowest_held(NOTHING, NOTHING, 0.2, 0.05) == CELLS
    assert lowest_held(counts, wrong, 0.0, 0.05) == CELLS


def test_the_first_cell_that_fails_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests together are wrong as rarely as one because none comes after one that failed: not even one that holds.

    With costs that only add up a later cell never holds. The promise must not rest on that.
    """
    fails = {24}
    tested: list[int] = []

    def scripted(_cost: float, _total: float, _bound: float) -> float:
        tested.append(CELLS - 1 - len(tested))
        return -np.inf if tested[-1] in fails else np.inf

    monkeypatch.setattr(risk, "capital", scripted)
    assert lowest_held(NOTHING, NOTHING, 0.2, 0.05) == 25
    assert tested == [31, 30, 29, 28, 27, 26, 25, 24]


def test_a_threshold_that_misses_the_risk_is_rarely_chosen() -> None:
    """Looked at after each of 500 answers, in fewer than delta of 200 runs."""
    random, missed = Random(5), 0
    for _ in range(200):
        total = wrong = 0
        for _ in range(500):
            total, wrong = total + 1, wrong + (random.random() < 0.1)
            if capital(wrong, total, 0.1) > -log(0.05):
                missed += 1
                break
    assert missed <= 0.05 * 200


def test_a_budget_is_the_quantile_of_the_confidences() -> None:
    """Half of what lies evenly in all cells lies below the middle, less the half of a cell that is drawn above it."""
    assert place_for([1.0] * CELLS, 0.5) == pytest.approx(15.5)
    assert place_for([1.0] * CELLS, 1.0) == float(CELLS)
    assert place_for([1.0] * CELLS, 0.0) == 0.0


def test_a_debt_is_paid_within_an_eighth_of_the_past() -> None:
    """Twenty questions too many of 1,000 lower the next share by 0.16; a price lowers it by itself."""
    assert payable(0.3, 1_000.0, 320.0) == pytest.approx(0.14)
    assert payable(0.3, 0.0, 0.0) == 0.3
    assert payable(0.3, 1_000.0, 300.0, 0.05) == pytest.approx(0.25)
    assert risen(0.0, 0.3, 1_000.0, is_asked=True) == pytest.approx(4 * 0.7 / 1_000)
    assert risen(0.0, 0.3, 1_000.0, is_asked=False) == pytest.approx(-4 * 0.3 / 1_000)


def test_a_new_cascade_asks_everything_on() -> None:
    """Nothing is known of the cheap model's answers, however sure it is of them."""
    steps = Cascade().steps(Cascade().init(2), 2)
    ask = steps.after((0,), {0: output(1, 0.01, 0.99)})
    assert steps.first == (0,)
    assert ask is not None
    assert (ask.arms, ask.probability, ask.confidence, ask.threshold) == ((1,), 1.0, 0.99, 1.0 - 1e-4)
    assert steps.after((0, 1), {}) is None


def test_a_cascade_that_has_learnt_keeps_sure_answers() -> None:
    """Above the threshold it asks rarely, just above it at random, below it always; so it does without an answer."""
    policy = Cascade(risk=0.05, explore=0.02)
    state = policy.init(2)
    for number in range(2_000):
        sure = number % 2
        losses = (0.0 if sure else float(number % 4 == 0), 0.0)
        state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), losses, steps=[step(0.9999 if sure else 0.5)]))
    after = policy.steps(state, 2).after
    shares = [ask.probability for c in (0.5, 0.6, 0.9999) if (ask := after((0,), {0: output(1, 1.0 - c, c)}))]
    assert shares[0] == 1.0
    assert 0.02 < shares[1] < 1.0
    assert shares[2] == 0.02
    assert (unanswered := after((0,), {})) is not None
    assert unanswered.probability == 1.0


def test_a_model_that_is_always_right_is_believed_without_scores() -> None:
    """A confidence of 0 for every answer is one cell, and that holds the risk."""
    policy = Cascade()
    state = policy.init(2)
    for _ in range(3_000):
        state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), (0.0, 0.0), steps=[step(0.0)]))
    after = policy.steps(state, 2).after
    assert (ask := after((0,), {0: output(1)})) is not None
    assert ask.probability == policy.explore
    assert (failed := after((0,), {0: output(1, outcome=Outcome.FAILED)})) is not None
    assert failed.probability == 1.0


def test_a_loss_that_is_not_known_counts_as_one() -> None:
    """Feedback about the served answer alone says nothing about the cheap one, if both differ: the risk is a bound."""
    policy = Cascade()
    state = policy.observe(policy.init(2), 2, Lesson((0, 1), (1.0, 1.0), (None, 0.0), steps=[step(0.5)]))
    assert state[2 * cell(0.5) : 2 * cell(0.5) + 2] == (1.0, 1.0)
    assert state[-3:-1] == (1.0, 1.0)


def test_the_dearest_answer_is_served() -> None:
    """Whatever cheaper ones said; if the dear one has not come, the next cheaper one is."""
    steps = Cascade().steps(Cascade().init(3), 3)
    assert steps.votes({0: 1, 1: 2, 2: 3}) == {0: 0.0, 1: 0.0, 2: 1.0}
    assert steps.votes({0: 1, 1: 2, 2: None}) == {0: 0.0, 1: 1.0, 2: 0.0}
    assert steps.votes({0: None}) == {0: 1.0}
    assert Cascade(first=2).steps(Cascade().init(3), 3).votes({0: 1, 1: 1}) == {0: 0.5, 1: 0.5}


@pytest.mark.parametrize(("late", "shift", "within"), [(0, 1, 0.02), (500, 1, 0.03), (0, 3, 0.04), (500, 3, 0.06)])
def test_a_budget_is_held(late: int, shift: int, within: float) -> None:
    """Within 2 %; 3 % if what is learnt comes 500 queries late; 4 and 6 % if confidences rise for good after 8,000."""
    policy, random = Cascade(risk=0.0, budget=0.3), Random(2)
    state, waiting, asked, steps = policy.init(2), deque[Step](), 0, policy.steps(policy.init(2), 2)
    for number in range(20_000):
        doubt = random.random() ** (2 if number < 8_000 else 2 * shift)
        if number % 20 == 0:  # as selection reads states: now and then
            steps = policy.steps(state, 2)
        ask = steps.after((0,), {0: output(1, doubt, 1.0 - doubt) if doubt < 0.5 else output(1)})
        assert ask is not None
        is_asked = random.random() < ask.probability
        asked += is_asked
        waiting.append(step(ask.confidence, "asked" if is_asked else "kept"))
        if len(waiting) > late:
            state = policy.observe(state, 2, Lesson((0,), (1.0, 1.0), (0.0, None), steps=[waiting.popleft()]))
    assert abs(asked / 20_000 - 0.3) <= within * 0.3


@pytest.mark.parametrize("arms", [2, 3])
@pytest.mark.parametrize("weight", [1.0, 0.02])
def test_a_budget_is_held_whatever_lessons_weigh(weight: float, arms: int) -> None:
    """Of light lessons as of whole ones, within 4 %: the budget is of queries. The last of three models is asked least.

    What is asked on is what is in most doubt: answers far below the threshold, for certain.
    """
    policy, random = Cascade(risk=0.0, budget=0.3), Random(4)
    state, asked, sure, unsure = policy.init(arms), 0, [0, 0], [0, 0]
    steps = policy.steps(state, arms)
    for number in range(12_000):
        if number % 20 == 0:
            steps = policy.steps(state, arms)
        taken: list[Step] = []
        there, losses = (0,), [0.0] * arms
        while len(there) < arms:
            doubt = random.random()
            ask = steps.after(there, {there[-1]: output(1, 0.5 * doubt, 1.0 - 0.5 * doubt)})
            assert ask is not None
            is_asked = random.random() < ask.probability
            taken.append(step(ask.confidence, "asked" if is_asked else "kept", there[-1] + 1))
            if number >= 6_000 and len(there) == arms - 1:
                known = unsure if doubt > 0.9 else sure if doubt < 0.1 else [0, 0]
                known[0] += 1
                known[1] += is_asked
            if not is_asked:
                break
            there += ask.arms
        asked += len(there) == arms
        known_losses = [loss if arm in there else None for arm, loss in enumerate(losses)]
        lesson = Lesson(there, (1.0,) * arms, known_losses, steps=taken, weight=weight)
        state = policy.observe(state, arms, lesson)
    assert abs(asked / 12_000 - 0.3) <= 0.04 * 0.3
    assert unsure[1] > 0.9 * unsure[0]
    assert sure[1] < 0.3 * sure[0]


@pytest.mark.parametrize("parameters", [{"risk": 1.0}, {"delta": 0.0}, {"budget": 1.5}, {"explore": 0.0}, {"first": 0}])
def test_parameters_out_of_range_are_refused(parameters: dict[str, float]) -> None:
    """With what is usual."""
    with pytest.raises(PolicyError, match="cascade: "):
        Cascade(**parameters)  # type: ignore[arg-type]


def test_another_cascade_is_judged_by_the_log_of_one() -> None:
    """Weighed by the logged probabilities its error is what it is when it is played (1,000 queries a run, 40 runs)."""
    random, estimates, truths = np.random.default_rng(3), [], []
    served, other = (Doubts((0,), 2, (at,), explore) for at, explore in ((4.0, 0.2), (9.0, 0.05)))
    for _ in range(40):
        doubts = random.random(1_000) ** 3
        losses = np.stack([random.random(1_000) < doubts, random.random(1_000) < 0.05], axis=1).astype(float)
        chances = np.array([served.chance(0, 1.0 - doubt) for doubt in doubts])
        seen = np.where(np.stack([np.ones(1_000, bool), random.random(1_000) < chances], axis=1), losses, np.nan)
        wanted = np.array([other.chance(0, 1.0 - doubt) for doubt in doubts])
        target = np.stack([1.0 - wanted, wanted], axis=1)
        estimates.append(ipw(Log(np.stack([np.ones(1_000), chances], axis=1), target, seen)).numerators.mean())
        truths.append((target * losses).sum(axis=1).mean())
    gaps = np.array(estimates) - np.array(truths)
    assert abs(gaps.mean()) < 3.0 * gaps.std() / np.sqrt(len(gaps)) + 1e-9
    assert gaps.std() > 0.0
