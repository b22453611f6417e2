"""Intervals on their way: made with the prediction, logged with the observation, learnt from in its order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies import conformal
from policies.errors import PolicyError
from policies.intervals import observe, start
from schemas.records import NumberInterval
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold, taught
from tests.loops import Loop, digits

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_US = 130_000_000
COVERAGE = 0.8
NUMBERS = {"models": ("good",), "policy": "single", "coverage": COVERAGE, "combine": "mean", "loss": "absolute"}


def numbers(answer: float | None = 10.0, **changes: object) -> Loop:
    """Return a loop around one model that answers a number, whose application promises coverage."""
    return Loop({"good": lambda _: answer}, digits(**(NUMBERS | changes)))


def ask(loop: Loop, labels: Sequence[float | str | None], context: str | None = None) -> list[str]:
    """Ask, each with feedback on the one before its next; return the ids."""
    ids = []
    for label in labels:
        ids.append(loop.query(context=context))
        loop.driver.run(0.1)
        if label is not None:
            loop.feedback(ids[-1], label=label)
        loop.driver.run(0.2)
    return ids


def made(loop: Loop) -> list[NumberInterval]:
    """Return the intervals of all predictions."""
    return [prediction.interval for prediction in loop.predictions() if prediction.interval is not None]


def test_at_first_any_number_may_be_the_true_one_and_later_those_near_the_answer() -> None:
    """With a promise of 0.8, four errors are the fewest that may say anything; a state is read one query later."""
    loop = numbers()
    ask(loop, [11.0, 8.0, 10.5, 9.5, 10.0, 10.0, 10.0, 10.0])
    found = made(loop)
    assert [each.low is None for each in found] == [True] * 5 + [False] * 3
    assert found[0] == NumberInterval(None, None, COVERAGE, found[0].alpha, 10.0)
    assert found[0].alpha == pytest.approx(0.2)
    assert (found[5].low, found[5].high, found[5].middle) == (8.0, 12.0, 10.0)


def test_an_interval_grows_when_the_model_turns_out_wrong() -> None:
    """It never errs by more than 1, and then by 50 each time."""
    loop = numbers()
    ask(loop, [11.0] * 20 + [60.0] * 12)
    assert made(loop)[20].high == 11.0
    assert made(loop)[-1].high == 60.0 or made(loop)[-1].high is None


def test_the_state_is_the_fold_of_the_log_bit_for_bit() -> None:
    """Its coverage is what the arithmetic makes of the errors, and the log has each interval as it was answered."""
    loop, labels = numbers(), [10.0 + number % 7 for number in range(15)]
    ask(loop, [*labels])
    stored = loop.driver.store.states[StateKey(0, "digits")]
    expected = start(COVERAGE)
    for label in labels:
        expected = observe(COVERAGE, expected, abs(label - 10.0))
    assert stored == fold(loop.observations(), WINDOW_US)["digits"]
    assert stored.coverage == expected
    assert all(seen.interval == loop.answer(seen.query_id).interval for _, seen in loop.observations())
    assert not any(seen.label_set for _, seen in loop.observations())


def test_without_a_number_nothing_is_learnt() -> None:
    """No feedback, and a loss without a label."""
    loop = numbers(default_loss=1.0, window_s=5.0)
    ask(loop, [None, None])
    loop.feedback(loop.query(), loss=1.0)
    loop.driver.run(30)
    assert len(loop.observations()) == 3
    assert fold(loop.observations(), WINDOW_US)["digits"].coverage == ()


def test_an_answer_of_no_model_has_no_interval() -> None:
    """The default output was not made from the query."""
    loop = numbers(None)
    (asked,) = ask(loop, [None])
    loop.driver.run(1)
    assert loop.answer(asked).interval is None


def test_a_promise_that_changes_holds_from_the_next_answer_on() -> None:
    """The errors are kept; so are they when labels are promised for a while, as far as they are of numbers."""
    loop = numbers()
    ask(loop, [11.0] * 10)
    loop.configure(replace(loop.application, coverage=0.5))
    ask(loop, [11.0] * 2)
    assert [each.coverage for each in made(loop)[-2:]] == [0.5, 0.5]
    assert made(loop)[-1].high == 11.0


def test_an_application_of_votes_has_sets_and_no_intervals() -> None:
    """Its `combine` says which."""
    loop = numbers(7, combine="weighted_vote", loss="zero_one")
    ask(loop, [7.0])
    assert not made(loop)
    assert loop.predictions()[0].label_set is not None


def test_learner_and_selection_count_what_became_of_intervals() -> None:
    """By the names that the page follows."""
    loop = numbers()
    ask(loop, [11.0] * 6 + [30.0])
    learner = loop.driver.operator("learner").statistics()
    selection = loop.driver.operator("selection").statistics()
    assert learner["intervals_judged_total{application=digits,outcome=held}"] == 6
    assert learner["intervals_judged_total{application=digits,outcome=missed}"] == 1
    assert selection["intervals_total{application=digits,kind=all}"] == 5
    assert selection["intervals_total{application=digits,kind=some}"] == 2
    assert selection["interval_widths_total{application=digits}"] == 4.0


def test_an_impossible_interval_is_refused_and_the_state_stays() -> None:
    """It cannot have come from selection."""
    loop = numbers()
    ask(loop, [11.0])
    ((at_us, seen),) = loop.observations()
    assert seen.interval is not None
    for spoilt in (seen.interval._replace(middle=float("nan")), seen.interval._replace(coverage=1.0)):
        with pytest.raises(PolicyError):
            taught({}, seen._replace(interval=spoilt), at_us, WINDOW_US)


def test_what_was_learnt_of_labels_is_nothing_to_intervals_and_the_other_way_round() -> None:
    """The promise is the same before and after; each kind of promise starts anew, and learning goes on."""
    loop = numbers(7, combine="weighted_vote", loss="zero_one")
    ask(loop, [7.0, 8.0] * 24)
    loop.configure(replace(loop.application, combine="mean", loss="absolute"))
    ask(loop, [7.5] * 48)
    stored = loop.driver.store.states[StateKey(0, "digits")]
    assert (stored.version, stored.coverage[-48:]) == (96, (0.5,) * 48)
    assert len(stored.coverage) == len(start(COVERAGE)) + 48 == 66  # as many numbers as a state of sets has
    assert made(loop)[-1].high == 7.5
    loop.configure(replace(loop.application, combine="weighted_vote", loss="zero_one"))
    ask(loop, [7.0])
    stored = loop.driver.store.states[StateKey(0, "digits")]
    assert stored.coverage == conformal.observe(COVERAGE, (), 1.0)


def test_a_state_that_cannot_learn_what_is_promised_is_refused_as_a_policy_is() -> None:
    """A learner that meets it leaves the observation out, and goes on."""
    loop = numbers()
    ask(loop, [11.0])
    ((at_us, seen),) = loop.observations()
    state = loop.driver.store.states[StateKey(0, "digits")]
    spoilt = state._replace(coverage=(*start(COVERAGE)[:2], *(-1e308,) * 8, *start(COVERAGE)[10:], 1.0))
    with pytest.raises(PolicyError, match="cannot learn"):
        taught({"digits": spoilt}, seen, at_us, WINDOW_US)
