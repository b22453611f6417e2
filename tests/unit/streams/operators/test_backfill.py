"""Backfill: what was observed before a model came is learnt by it as well, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.errors import PolicyError
from schemas import topics
from schemas.records import Tensor
from streams.operators.contract import StateKey
from streams.operators.learn.backfill import Backfill
from streams.operators.learn.fold import fold
from streams.testing import Crash, Fault
from tests.loops import CODEC, Loop, Row, digits, row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Application, Value

WINDOW_US = 130_000_000
VALUES = (-2.0, 2.0, -1.0, 1.0) * 6


def useful(asked: Row) -> Value:
    """Compute what the label follows from."""
    assert isinstance(asked.input, Tensor)
    return Tensor.of(np.array([float(asked.input.numpy()[0])]))


def rated(*models: str) -> Application:
    """Make the application with these models."""
    parameters = {"features": 1.0, "low": 1.0, "high": 5.0}
    return digits(models=models, policy="ridge", parameters=parameters, per_context=True, loss="squared", span=4.0)


def ask(loop: Loop, value: float, label: float | None = None) -> str:
    """Ask, and tell the label if there is one."""
    query_id = loop.query(context="ann", input=row(value))
    loop.driver.run(seconds=0.2)
    if label is not None:
        loop.feedback(query_id, label)
        loop.driver.run(seconds=0.3)
    return query_id


def begun(faults: Iterable[Fault] = ()) -> tuple[Loop, dict[str, float]]:
    """Return a loop whose old model computes nothing of use, with 24 labels; and the inputs by query."""
    loop = Loop({"old": lambda _: Tensor.of(np.zeros(1)), "anew": useful}, rated("old"), faults)
    inputs = {ask(loop, value, 3.0 + value): value for value in VALUES}
    loop.configure(rated("old", "anew"))
    return loop, inputs


def backfilled(loop: Loop, inputs: dict[str, float], most: int = 1_000) -> int:
    """Read the log, write the lessons that it still lacks; return how many."""
    plan = Backfill(rated("old", "anew"), "anew")
    for _, seen in loop.observations():
        plan.take(seen)
    missed = [*plan.missed][:most]
    for query_id in missed:
        lesson = plan.lesson(query_id, Tensor.of(np.array([inputs[query_id]])))
        loop.driver.produce(topics.OBSERVATIONS, 0, CODEC.encode(lesson), lesson.decision.state.encode())
    loop.driver.run(seconds=2)
    return len(missed)


def test_the_new_model_answers_from_what_was_learnt_before_it_came() -> None:
    """Alone, it knows the user at once; without the backfill it would know nothing."""
    answers = {}
    for is_taught in (True, False):
        loop, inputs = begun()
        if is_taught:
            assert backfilled(loop, inputs) == len(VALUES)
        loop.configure(rated("anew"))
        ask(loop, 2.0)  # has the state read again, which selection has held since before
        answers[is_taught] = loop.answer(ask(loop, 2.0)).answer
    assert answers[True] == pytest.approx(5.0, abs=0.2)
    assert answers[False] == pytest.approx(1.0)


def test_a_backfill_that_was_killed_is_run_once_more_and_teaches_nothing_twice() -> None:
    """The learner is killed meanwhile, too; the states are the fold of the log, and each label is in them once."""
    loop, inputs = begun([Crash(at_us=13_000_000, role="learner")])
    assert backfilled(loop, inputs, most=9) == 9
    assert backfilled(loop, inputs) == len(VALUES) - 9
    assert backfilled(loop, inputs) == 0
    log = loop.observations()
    assert len(log) == len({seen.query_id for _, seen in log}) == 2 * len(VALUES)
    states = fold(log, WINDOW_US)
    assert states["digits/ann"].version == 2 * len(VALUES)
    for name, state in states.items():
        assert loop.driver.store.states[StateKey(0, name)] == state


def test_what_the_model_has_seen_itself_is_no_lesson() -> None:
    """Nor what has no number for a label, nor what another application has observed."""
    loop, inputs = begun()
    seen_by_both = ask(loop, 1.0, 4.0)
    plan = Backfill(rated("old", "anew"), "anew")
    for _, seen in loop.observations():
        plan.take(seen)
        plan.take(seen._replace(query_id="other", application="other"))
        plan.take(seen._replace(query_id="untold", label=None))
    assert plan.missed.keys() == inputs.keys()
    with pytest.raises(KeyError):
        plan.lesson(seen_by_both, Tensor.of(np.zeros(1)))


def test_only_a_state_that_answers_can_be_taught_so() -> None:
    """And only a model that the application names."""
    for application, model, why in (
        (digits(), "good", "A backfill is for `ridge`"),
        (rated("old"), "anew", "has no model anew; name it first: old"),
    ):
        with pytest.raises(PolicyError, match=why):
            Backfill(application, model)
