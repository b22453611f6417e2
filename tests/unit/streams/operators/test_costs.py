"""Costs in the loop: every model whose answer is known is judged, and labels that are no class are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.loss_rules import written
from schemas import topics
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from tests.loops import CODEC, KEPT, Loop, digits, version

FRAUD = written({"cost": {"fraud": {"ok": 40}, "ok": {"fraud": 1}}, "unit": "EUR"}).text
CAREFUL, BLIND = (lambda _: "fraud"), (lambda _: "ok")


def judged(loop: Loop, label: object, **more: object) -> None:
    """Ask once and tell what was true."""
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label, **more)  # type: ignore[arg-type]
    loop.driver.run(0.1)


def frauds(**changes: object) -> Loop:
    """Return a loop in which all models are asked, one of which calls everything a fraud and one nothing."""
    return Loop({"good": CAREFUL, "bad": BLIND}, digits(policy="exp4", loss=FRAUD, **changes))


def test_every_model_is_charged_what_its_answer_costs() -> None:
    """As a share of the worst mistake, whose cost stands beside it."""
    loop = frauds()
    judged(loop, "ok")
    judged(loop, "fraud")
    (_, first), (_, second) = loop.observations()
    assert (first.losses, first.worth) == ((1 / 40, 0.0), 40.0)
    assert (second.losses, second.worth) == ((0.0, 1.0), 40.0)


@pytest.mark.parametrize("label", [1, 1e9, "frad"])
def test_a_label_that_is_no_class_is_a_dead_letter_and_the_prediction_waits_on(label: float | str) -> None:
    """Its cause is `unknown_label`; the right one may follow."""
    loop = frauds()
    judged(loop, label)
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["unknown_label"]
    assert not loop.observations()
    loop.feedback("q1", "ok")
    loop.driver.run(0.1)
    assert len(loop.observations()) == 1


def classified(classes: tuple[tuple[str, ...], ...]) -> Loop:
    """Return a loop of models that list these classes."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4"))
    for name, known in zip(("good", "bad"), classes, strict=True):
        record = replace(version(name), classes=known)
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(record), name.encode())
    loop.driver.run(0.1)
    return loop


def test_where_models_list_their_classes_another_label_is_refused() -> None:
    """With the plain zero-one loss, too; a class that one of them knows is a label."""
    loop = classified((("3", "7"), ("3", "5")))
    for label in (12, 1e9, "frad", 5):
        judged(loop, label)
    causes = [cause for cause, _ in loop.dead(topics.FEEDBACK)]
    assert causes == ["unknown_label", "unknown_label", "invalid_feedback"]
    assert [seen.label for _, seen in loop.observations()] == [5]


def test_where_a_model_does_not_say_which_classes_it_has_every_label_counts() -> None:
    """Nothing is known about them."""
    loop = classified((("3", "7"), ()))
    judged(loop, 12)
    assert [seen.losses for _, seen in loop.observations()] == [(1.0, 1.0)]


def test_a_learnt_span_says_what_an_error_of_it_costs() -> None:
    """The cost is loss x worth, whatever the span was."""
    text = written({"asymmetric": {"over": 1, "under": 4}, "unit": "min"}).text
    loop = Loop({"good": lambda _: 11.0, "bad": lambda _: 7.0}, digits(policy="exp4", loss=text, combine="mean"))
    for _ in range(5):
        judged(loop, 10.0)
    for _, seen in loop.observations():
        assert seen.span is not None
        assert seen.worth == pytest.approx(4 * seen.span)
        costs = [(loss or 0.0) * seen.worth for loss in seen.losses]
        assert costs == pytest.approx([1.0, min(12.0, 4 * seen.span)])


def test_a_refused_rule_leaves_what_was_there() -> None:
    """An application's record whose loss is none is a dead letter of no consequence."""
    loop = frauds()
    loop.configure(digits(policy="exp4", loss='{"cost":{"fraud":{"ok":40}}}'))
    loop.driver.run(0.1)
    judged(loop, "fraud")
    assert [seen.losses for _, seen in loop.observations()] == [(0.0, 1.0)]


def test_states_are_a_fold_of_the_log_alone() -> None:
    """What costs in a unit taught is folded again, bit for bit."""
    loop = frauds()
    for label in ("ok", "fraud", "ok", "ok", "fraud"):
        judged(loop, label)
    folded = fold(loop.observations(), KEPT[0])
    assert {StateKey(0, name): state for name, state in folded.items()} == loop.driver.store.states
