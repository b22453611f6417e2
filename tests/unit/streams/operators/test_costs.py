"""Costs in the loop: every model whose answer is known is judged, and labels that are no class are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from policies.loss_rules import rule, written
from schemas import topics
from schemas.records import Decision, JoinStatus, KeyedFeedback, Observation, VersionLoss
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.operators.statistics import Losses
from streams.operators.weighing import in_one_unit, weighed
from streams.promotion.serving_losses import ServingLosses
from streams.promotion.versions import VersionEvidence
from tests.loops import CODEC, KEPT, Loop, digits, version

FRAUD = written({"cost": {"fraud": {"ok": 40}, "ok": {"fraud": 1}}, "unit": "EUR"}).text
DECISION = Decision((0,), 0, "digits", "exp3()", ("a", "b"), (0.5, 0.5))
OBSERVED = Observation("q", "digits", None, DECISION, (0.5, None), 0.5, 1, JoinStatus.JOINED, 1, 2)
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
        assert seen.worth is not None
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


@pytest.mark.parametrize(("loss", "max_weight"), [(FRAUD, 1.0), ("zero_one", 4.0)])
def test_columns_leave_what_has_a_unit_or_a_weight_to_the_kernel(loss: str, max_weight: float) -> None:
    """Also where feedback tells the loss itself: the observation says the worth, or the part."""
    changes = {"policy": "exp3", "loss": loss, "max_weight": max_weight, "window_s": 20.0}
    loop = Loop({"good": CAREFUL, "bad": BLIND}, digits(**changes), packed=Random(1), columns=True)
    for _ in range(10):
        asked = [loop.query() for _ in range(3)]
        loop.driver.run(1.0)
        for query_id in asked:
            loop.feedback(query_id, loss=0.5)
        loop.driver.run(1.0)
    expected = (40.0, None) if loss == FRAUD else (None, 0.25)
    assert [(seen.worth, seen.weight) for _, seen in loop.observations()] == [expected] * 30


def test_a_told_loss_has_a_price_and_a_label_is_no_loss() -> None:
    """`given` with what a loss of 1 costs takes losses alone."""
    loop = Loop({"good": CAREFUL, "bad": BLIND}, digits(policy="single", loss='{"given":12,"unit":"EUR"}'))
    judged(loop, 1)
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    loop.feedback("q1", loss=0.5)
    loop.driver.run(0.1)
    assert [(seen.losses, seen.worth) for _, seen in loop.observations()] == [((0.5, None), 12.0)]


def heavy(policy: str, *told: tuple[object, float | None], **changes: object) -> Loop:
    """Return a loop that was told labels with weights, of which the largest is 4."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy=policy, max_weight=4.0, **changes))
    for label, weight in told:
        judged(loop, label, weight=weight)
    return loop


def test_a_weight_is_a_part_of_the_largest_one() -> None:
    """Without one it is 1; the observation says the part, from which states follow."""
    loop = heavy("exp4", (7, 4.0), (3, 2.0), (7, None))
    assert [seen.weight for _, seen in loop.observations()] == [1.0, 0.5, 0.25]
    folded = fold(loop.observations(), KEPT[0])
    assert {StateKey(0, name): state for name, state in folded.items()} == loop.driver.store.states


@pytest.mark.parametrize("weight", [0.0, -1.0, 4.5, 1e300])
def test_a_weight_that_the_application_does_not_take_is_refused(weight: float) -> None:
    """Nothing is learnt from it; what is not finite cannot be written."""
    loop = heavy("exp4", (7, weight))
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert not loop.observations()


def test_a_policy_that_does_not_weigh_is_taught_smaller_losses() -> None:
    """So losses stay in [0, 1], and what matters little costs little."""
    loop = heavy("tests.unit.policies.test_weights:Plain", (3, 2.0))
    (state,) = loop.driver.store.states.values()
    assert state is not None
    assert state.values == (0.5,)
    assert [seen.losses for _, seen in loop.observations()] == [(1.0, None)]


def test_figures_count_what_weighs_less_in_part() -> None:
    """So their means are weighted means, also of costs."""
    loop, counted = frauds(max_weight=4.0), Losses()
    judged(loop, "fraud", weight=4.0)
    judged(loop, "ok", weight=1.0)
    counted.add(seen for _, seen in loop.observations())
    found = counted.rendered()
    served = [(seen.loss or 0.0, seen.weight or 0.0) for _, seen in loop.observations()]
    assert found["cost_total{application=digits}"] == sum(40.0 * loss * weight for loss, weight in served) > 0.0
    assert found["model_losses_total{application=digits,model=bad}"] == 1.25
    assert found["model_loss_total{application=digits,model=bad}"] == 1.0
    assert found["model_cost_total{application=digits,model=bad}"] == 40.0
    assert found["model_cost_total{application=digits,model=good}"] == 0.25


def test_feedback_that_is_held_keeps_its_weight() -> None:
    """What may be corrected until its window is nearly over, and what is about a context's last answer."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="single", max_weight=4.0, window_s=20.0))
    query_id = loop.query()
    loop.driver.run(0.1)
    told = KeyedFeedback("", "digits", query_id, 0, 7, None, loop.driver.now_us, revises=True, weight=2.0)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(told), query_id.encode())
    loop.driver.run(25)
    assert [seen.weight for _, seen in loop.observations()] == [0.5]


def test_the_cheaper_version_is_found_by_cost_where_the_other_is_right_more_often() -> None:
    """Candidate and incumbent saw the same queries; the candidate raises false alarms, and misses no fraud."""
    priced, plain = VersionEvidence("m", "2", "1"), VersionEvidence("m", "2", "1")
    for number in range(400):
        is_fraud, is_alarm = number % 20 == 0, number % 5 == 1
        candidate, incumbent = ("fraud" if is_fraud or is_alarm else "ok"), "ok"
        label = "fraud" if is_fraud else "ok"
        for evidence, text in ((priced, FRAUD), (plain, "zero_one")):
            losses = [rule(text).loss(answer, label) for answer in (candidate, incumbent)]
            versions = (VersionLoss("m", "2", losses[0]), VersionLoss("m", "1", losses[1]))
            evidence.take(OBSERVED._replace(query_id=f"q{number}", versions=versions))
    assert priced.evidence(0.05).difference > 0.0 > plain.evidence(0.05).difference


def test_who_judges_sees_losses_by_weight_and_in_one_unit() -> None:
    """The heaviest counts whole; a loss of half the worth is half as large."""
    seen = [
        OBSERVED._replace(losses=(1.0, None), loss=1.0, worth=worth, weight=weight)
        for worth, weight in ((40.0, 0.5), (20.0, 0.5), (40.0, 0.25))
    ]
    found, worth, parts, _ = in_one_unit(seen)
    assert ([one.losses for one in found], worth) == ([(1.0, None), (0.5, None), (0.5, None)], 40.0)
    assert parts == (1.0, 1.0, 0.5)
    assert in_one_unit([seen[0], OBSERVED]).worth is None
    assert weighed(seen[2]).loss == 0.25
    assert weighed(OBSERVED) is OBSERVED


def test_promotion_and_what_serves_go_by_weights() -> None:
    """A candidate that errs more often, but never where it matters, is the better one."""
    evidence, serving = VersionEvidence("m", "2", "1"), ServingLosses()
    for number in range(600):
        is_heavy = number % 3 == 0
        versions = (VersionLoss("m", "2", float(not is_heavy)), VersionLoss("m", "1", float(is_heavy)))
        weight = 1.0 if is_heavy else 0.1
        seen = OBSERVED._replace(query_id=f"q{number}", versions=versions, weight=weight, loss=float(is_heavy))
        evidence.take(seen)
        serving.observe(seen, number)
    assert evidence.evidence(0.05).lower > 0.0
    assert serving.applications["digits"].losses.mean == pytest.approx(1 / 3)
    light = OBSERVED._replace(weight=0.1, loss=1.0, query_id="light")
    for _ in range(600):
        serving.observe(light, 600)
    assert serving.applications["digits"].losses.mean == pytest.approx((1 / 3 + 0.1) / 2)
