"""Sets of labels beside answers: made with a prediction, judged by the label that is told later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import conformal
from policies.contract import OwnAnswer
from policies.errors import PolicyError
from policies.label_weights import label_weights
from schemas.records import LabelSet, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import State, VoteWeights
    from schemas.records import Decision, ModelOutput, Observation, Prediction, Value

MOST_LABELS = 100  # with most weight; the others count as of none


def label_set(
    prediction: Prediction,
    weights: Sequence[float] | VoteWeights | OwnAnswer,
    aim: conformal.Aim,
    classes: Mapping[str, tuple[str, ...]],
) -> LabelSet | None:
    """Return the set of labels of a prediction; None where no policy decided, or no model answered with a label.

    Args:
        prediction: with the outputs that its answer was made of.
        weights: of the arms, as its answer was made; those of a policy with answers of its own count all the same.
        aim: of the state.
        classes: names of the scores' classes, by `MODEL@VERSION`.
    """
    decision = prediction.decision
    if decision is None:
        return None
    usable = _usable(prediction, decision)
    by_label = label_weights(_votes(weights, prediction, decision), usable, classes)
    ranked = sorted(by_label, key=by_label.__getitem__, reverse=True)
    if not ranked:
        return None
    kept = [label for label in ranked[:MOST_LABELS] if by_label[label] >= conformal.LIGHTEST] or ranked[:1]
    size = max(1, sum([by_label[label] >= aim.least for label in kept]))
    weighed = tuple([min(1.0, by_label[label]) for label in kept])
    coverage, alpha, least = aim
    return LabelSet(tuple(kept[:size]), least <= 0.0, coverage, alpha, least, weighed, tuple(kept[size:]))


def _usable(prediction: Prediction, decision: Decision) -> dict[int, ModelOutput]:
    outputs = {output.model: output for output in prediction.outputs}
    asked = {arm: outputs[decision.arms[arm]] for arm in decision.chosen if decision.arms[arm] in outputs}
    return {arm: output for arm, output in asked.items() if output.outcome is Outcome.OK or output.reconstructed}


def _votes(
    weights: Sequence[float] | VoteWeights | OwnAnswer, prediction: Prediction, decision: Decision
) -> Mapping[int, float]:
    """Return how much each asked arm counts; nothing where that is not known."""
    if isinstance(weights, OwnAnswer):
        return {}
    if callable(weights):
        answers = {output.model: output.answer for output in prediction.outputs}
        try:
            return weights({arm: answers.get(decision.arms[arm]) for arm in decision.chosen})
        except PolicyError:  # of a policy from outside
            return {}
    return {arm: weights[arm] for arm in decision.chosen}


def holds(labels: LabelSet, label: Value) -> bool:
    """Tell whether a set holds a label; numbers and texts are compared as texts, as classes travel."""
    return labels.is_all or _text(label) in map(_text, labels.labels)


def weight_of(labels: LabelSet, label: Value) -> float:
    """Return the weight that a label had, in [0, 1]."""
    text = _text(label)
    known = zip(labels.labels + labels.others, labels.weights, strict=False)
    return next((weight for candidate, weight in known if _text(candidate) == text), 0.0)


def _text(label: Value) -> str:
    return f"{label:.17g}" if isinstance(label, int | float) else str(label)


def covered(seen: Observation, state: State) -> State:
    """Return what an observation makes of a state; without a set or a label nothing changes.

    Raises:
        PolicyError: its set cannot be.
    """
    made, label = seen.label_set, seen.label
    if made is None or label is None:
        return state
    return conformal.observe(made.coverage, state, weight_of(made, label))
