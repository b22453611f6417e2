"""What mistakes cost: each rule against scikit-learn, NumPy or its closed form, and its promises on any numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, mean_absolute_percentage_error, mean_pinball_loss, zero_one_loss

from deploy.config.settings import _NAMED_LOSSES
from policies.errors import LossError, PolicyError, UnknownLabelError
from policies.loss_rules import MAKERS, OWN, fault, kind_named, rule, unit_of, written
from policies.losses import LOSSES, loss
from schemas.inputs import named_tensors
from schemas.records import Tensor

if TYPE_CHECKING:
    from policies.loss_rules import LossRule

FRAUD = {"cost": {"fraud": {"ok": 40}, "ok": {"fraud": 1}}, "unit": "EUR"}
RNG = np.random.default_rng(5)
NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)
SPANNED = [
    {"quantile": 0.9},
    {"asymmetric": {"over": 1, "under": 4}},
    {"asymmetric": {"over": 3, "under": 0}},
    {"relative": {"least": 2}},
    {"relative": True},
    {"absolute": True},
    {"squared": True},
]


def made(given: object) -> LossRule:
    """Return a rule as a user writes it."""
    return rule(written(given).text)


def cost(found: LossRule, answer: float | str, label: float | str, span: float = 1.0) -> float:
    """Return what an answer costs in the rule's unit."""
    worth = found.worth(span)
    assert worth is not None
    return found.loss(answer, label, span=span) * worth


def test_a_miss_costs_what_the_matrix_says() -> None:
    """In the unit of the matrix, and as a share of the worst mistake."""
    found = made(FRAUD)
    assert [cost(found, answer, label) for label, answer in (("fraud", "ok"), ("ok", "fraud"), ("ok", "ok"))] == [
        40,
        1,
        0,
    ]
    assert found.loss("fraud", "ok") == 1 / 40
    assert found.unit == "EUR"


def test_the_answer_that_costs_least_is_bayes_decision() -> None:
    """Over many labels drawn from p, the best class is the argmin of p C, as NumPy has it; not that of p C'."""
    for _ in range(20):
        costs, p = RNG.integers(1, 50, (4, 4)).astype(float), RNG.dirichlet(np.ones(4))
        np.fill_diagonal(costs, 0.0)
        found = made({"cost": {t: {a: costs[t, a] for a in range(4) if a != t} for t in range(4)}})
        expected = [sum(p[t] * cost(found, a, t) for t in range(4)) for a in range(4)]
        assert expected == pytest.approx(p @ costs)
        assert int(np.argmin(expected)) == int(np.argmin(p @ costs))


def test_scores_are_judged_by_their_largest() -> None:
    """Its class is what was answered."""
    scores = Tensor.of(np.array([0.7, 0.3], np.float32))
    assert made(FRAUD).loss(scores, "fraud", classes=("ok", "fraud")) == 1.0
    assert made(FRAUD).loss(scores, "ok", classes=("ok", "fraud")) == 0.0
    assert made({"cost": {0: {1: 3}, 1: {0: 5}}}).loss(scores, 1) == 1.0


def test_a_star_stands_for_what_is_not_named() -> None:
    """An entry of the class itself comes first, then its row, then the answer's column, then all others."""
    found = made({"cost": {"fraud": {"ok": 40, "*": 20}, "*": {"fraud": 2, "*": 1}}})
    said = [("fraud", "ok"), ("fraud", "odd"), ("ok", "fraud"), ("ok", "odd"), ("odd", "odd"), ("odd", "even")]
    assert [cost(found, answer, label) for label, answer in said] == [40, 20, 2, 1, 0, 1]


@pytest.mark.parametrize("label", [True, 1e9, "frad", 0, "Fraud"])
def test_a_label_that_is_no_class_is_refused(label: float | str) -> None:
    """It is a slip: nothing may be learnt from it."""
    with pytest.raises(UnknownLabelError, match="none of the classes that `loss` names: fraud, ok"):
        made(FRAUD).loss("ok", label)


def test_an_answer_that_is_no_class_costs_the_most() -> None:
    """It is the model's fault, and the label is right."""
    assert made(FRAUD).loss("perhaps", "ok") == 1.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cost": {"fraud": {"ok": 40}}}, "nothing says what 'fraud' costs where 'ok' is true"),
        ({"cost": {"a": {"b": -1}, "b": {"a": 1}}}, "a: b is -1; a cost is a number, 0 at least"),
        ({"cost": {"a": {"b": 0}, "b": {"a": 0}}}, "no mistake costs anything"),
        ({"cost": {True: {False: 1}, False: {True: 1}}}, "is a yes or no of YAML: put it in quotes"),
        ({"cost": 40}, "write {TRUE CLASS: {ANSWER: COST}}"),
        ({"quantile": 1.5}, "does not lie between 0 and 1"),
        ({"asymmetric": {"over": 1}}, "write {over: NUMBER, under: NUMBER}"),
        ({"asymmetric": {"over": 0, "under": 0}}, "no error costs anything"),
        ({"relative": {"most": 1}}, "write true, or {least: NUMBER}"),
        ({"quantile": 0.5, "span": [3, 1]}, "make it a positive number, or"),
        ({**FRAUD, "span": 3}, "it has no span"),
        ({"quantile": 0.5, "relative": True}, "name one of"),
        ({"pinball": 0.5}, "there is no 'pinball'"),
        ({"absolute": 3}, "write absolute: true"),
        ("zero-one", "is none of zero_one, absolute"),
        (7, "write a name"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_to_write(given: object, says: str) -> None:
    """The message names the fault."""
    with pytest.raises(PolicyError, match=says):
        written(given)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"zero_one": 1{"0" * 400}}}',
        f'{{"cost": {{"a": {{"*": 1{"0" * 400}}}}}}}',
        f'{{"asymmetric": {{"over": 1{"0" * 400}, "under": 1}}}}',
        f'{{"relative": {{"least": 1{"0" * 400}}}}}',
        '{"cost": ' * 5_000 + "1" + "}" * 5_000,
        '{"cost": {"a": {"*": 1}}, "unit": "' + "x" * 100_000 + '"}',
    ],
    ids=["number", "cost", "asymmetric", "relative", "levels", "length"],
)
def test_a_rule_beyond_measure_is_refused_like_any_other(text: str) -> None:
    """Whoever follows applications reads it, and goes on."""
    with pytest.raises(PolicyError):
        rule(text)
    assert fault(text)


def test_large_whole_numbers_are_classes_as_they_are_written() -> None:
    """Two ids of 19 digits are two classes, and not one with an exponent."""
    one, other = 1234567890123456789, 1234567890123456790
    made = rule(json.dumps({"cost": {str(one): {str(other): 3}, str(other): {str(one): 6}}}))
    assert (made.loss(other, one), made.loss(one, other), made.loss(one, one)) == (0.5, 1.0, 0.0)


def test_a_thousand_classes_are_read_without_a_look_at_each_pair() -> None:
    """What is lacking is still found, the first of it by name."""
    whole = {f"c{number}": {"*": 1} for number in range(1_000)}
    assert rule(json.dumps({"cost": whole})).loss("c1", "c2") == 1.0
    with pytest.raises(PolicyError, match="nothing says what 'b' costs where 'a' is true"):
        rule(json.dumps({"cost": {"a": {"c": 1}, "b": {"*": 1}, "c": {"*": 1}}}))


def test_a_quantile_costs_what_scikit_learn_says() -> None:
    """Within the span, the mean cost is its pinball loss."""
    labels, answers = RNG.normal(50, 20, 500), RNG.normal(50, 20, 500)
    for alpha in (0.1, 0.5, 0.9):
        costs = [cost(made({"quantile": alpha}), a, y, 300) for a, y in zip(answers, labels, strict=True)]
        assert np.mean(costs) == pytest.approx(mean_pinball_loss(labels, answers, alpha=alpha))


def test_the_least_quantile_cost_is_at_the_quantile() -> None:
    """What is to be above 9 of 10 labels is judged best where it is."""
    labels, grid = RNG.exponential(10, 400), np.linspace(15, 35, 81)
    found = made({"quantile": 0.9})
    means = [np.mean([found.loss(a, y, span=200) for y in labels]) for a in grid]
    assert grid[int(np.argmin(means))] == pytest.approx(np.quantile(labels, 0.9), abs=0.3)


def test_a_relative_loss_is_the_percentage_error_of_scikit_learn() -> None:
    """Where labels are larger than `least`, and errors smaller than the label."""
    labels, answers = RNG.uniform(50, 90, 300), RNG.uniform(50, 90, 300)
    costs = [cost(made({"relative": {"least": 1}}), a, y) for a, y in zip(answers, labels, strict=True)]
    assert np.mean(costs) == pytest.approx(mean_absolute_percentage_error(labels, answers))


def test_an_asymmetric_loss_is_its_closed_form() -> None:
    """An error of one span in the dearer direction costs 1; the other direction keeps its ratio."""
    found = made({"asymmetric": {"over": 1, "under": 4}})
    errors = RNG.uniform(-80, 80, 300)
    expected = np.minimum(np.where(errors > 0, errors, -4 * errors), 4 * 50)
    assert [cost(found, 100 + e, 100.0, 50) for e in errors] == pytest.approx(expected)
    assert (found.loss(50.0, 100.0, span=50), found.loss(150.0, 100.0, span=50)) == (1.0, 0.25)


def test_log_and_zero_one_losses_in_a_unit_are_those_of_scikit_learn() -> None:
    """The log loss in nats; a mistake that costs 12 each, by example weights too."""
    p = RNG.dirichlet(np.ones(3), 200)
    labels = RNG.integers(0, 3, 200)
    found = made({"log": True})
    worth = found.worth(None)
    assert worth is not None
    costs = [found.loss(None, int(y), Tensor.of(one)) * worth for one, y in zip(p, labels, strict=True)]
    assert np.mean(costs) == pytest.approx(log_loss(labels, p, labels=[0, 1, 2]))
    assert found.unit == "nats"
    weights, answers, priced = RNG.uniform(0.1, 1, 200), p.argmax(axis=1), made({"zero_one": 12, "unit": "EUR"})
    costs = [cost(priced, int(a), int(y)) for a, y in zip(answers, labels, strict=True)]
    assert np.average(costs, weights=weights) == pytest.approx(
        12 * zero_one_loss(labels, answers, sample_weight=weights)
    )


@pytest.mark.parametrize("given", SPANNED)
@given(answer=NUMBERS, label=NUMBERS, span=st.floats(1e-6, 1e9))
def test_losses_of_numbers_stay_in_their_bounds_and_grow_with_the_error(
    given: dict[str, object], answer: float, label: float, span: float
) -> None:
    """0 where it is right, at most 1, and twice as far off in the same direction never costs less."""
    found = made(given)
    near, far = found.loss(answer, label, span=span), found.loss(label + 2 * (answer - label), label, span=span)
    assert found.loss(label, label, span=span) == 0.0
    assert 0.0 <= near <= 1.0
    assert far >= near - 1e-9


@pytest.mark.parametrize("given", SPANNED)
def test_of_a_tensor_a_loss_is_the_mean_of_its_numbers(given: dict[str, object]) -> None:
    """Each number is judged as alone."""
    found, answers, labels = made(given), RNG.normal(0, 9, 12), RNG.normal(0, 9, 12)
    labels[0] = 0.0
    whole = found.loss(named_tensors({"x": answers}), named_tensors({"x": labels}), span=10.0)
    assert whole == pytest.approx(
        np.mean([found.loss(a, y, span=10.0) for a, y in zip(answers.tolist(), labels.tolist(), strict=True)])
    )


def test_labels_that_are_no_numbers_are_refused() -> None:
    """By every loss of numbers."""
    for spanned in SPANNED:
        with pytest.raises(LossError, match="not a finite number"):
            made(spanned).loss(3.0, "three")


def test_a_rule_reads_back_and_old_names_stay_as_they_are() -> None:
    """A record that is read and written again is the same; the span stands beside it."""
    for one in (FRAUD, *SPANNED, {"own": "pkg.mod:cost", "unit": "EUR"}):
        text, span = written(one)
        assert (written(text), span) == ((text, None), None)
    assert written({"quantile": 0.9, "span": [0, 300]}) == (written({"quantile": 0.9}).text, 300.0)
    assert [written(name) for name in LOSSES] == [(name, None) for name in LOSSES]
    assert json.loads(written({"cost": {1: {0: 2}, 0: {1: 3}}}).text) == {"cost": {"0": {"1": 3}, "1": {"0": 2}}}
    assert LOSSES == _NAMED_LOSSES
    kinds = {"cost", "quantile", "asymmetric", "relative", "cosine", "fields", "outputs"}
    assert {*LOSSES, *kinds, OWN} == {*MAKERS}


def test_a_name_alone_has_no_worth_and_judges_as_ever() -> None:
    """So what is stored of such losses does not change."""
    assert [rule(name).worth(3.0) for name in LOSSES] == [None] * len(LOSSES)
    assert (kind_named('{"given":12}'), kind_named("none at all"), unit_of("none at all")) == ("given", "", "")
    assert rule("absolute").loss(3.0, 5.0, span=4.0) == loss("absolute", 3.0, 5.0, span=4.0) == 0.5


def test_what_cannot_be_imported_speaks_against_a_rule() -> None:
    """Before any feedback comes."""
    assert "cannot be imported here" in fault("no_such_pkg:cost")
    assert "names the standard library" in fault(written({"own": "os:system"}).text)
    assert fault(written(FRAUD).text) == ""
