"""What a prediction and its feedback teach: the loss of every model that was asked, by its recorded answer.

For losses of numbers, `ErrorSpans` knows which error costs a full loss:

    span       = the application's; else it is learnt: nine of ten errors are below it
    first span = twice the first error, so that this error costs a half and teaches nothing yet
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING

from policies import registry
from policies.confidence import own_confidence
from policies.contract import is_answer_aware, is_choosing
from policies.errors import LossError, PolicyError
from policies.loss_rules import rule
from policies.outside import comes_from_outside
from schemas import topics
from schemas.records import JoinStatus, Observation, Outcome, Tensor, answered_item
from streams.operators.statistics import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.records import Decision, Feedback, ModelOutput, Prediction, Value

# Not 0.95: a bad model that is only tried now and then must not set the scale of the good ones' losses.
_QUANTILE = 0.9
# With a tenth, it follows a change by a factor of ten within some 25 errors, and moves by 1 % if errors stay below it.
_STEP = 0.1
_UP, _DOWN = 1.0 + _STEP * _QUANTILE, 1.0 - _STEP * (1.0 - _QUANTILE)
_NONE: Mapping[str, float] = {}
_SMALLEST, _LARGEST = 1e-300, 1e300  # so that it neither ends nor overflows

# The model was asked and gave no answer by the deadline, so its user had none.
NO_ANSWER_LOSS = 1.0
GIVEN = "given"
# They say nothing about the model.
_TELLING_NOTHING = (Outcome.INVALID, Outcome.UNKNOWN_VERSION, Outcome.OVERLOADED)


class ErrorSpans:
    """The spans that are learnt, by application; the same errors in the same order give the same ones."""

    __slots__ = ("_learnt",)

    def __init__(self) -> None:
        self._learnt: dict[str, float] = {}

    def rendered(self) -> dict[str, float]:
        """Return `learnt_span` by application."""
        return {render(("learnt_span", "application", name)): span for name, span in self._learnt.items()}

    def snapshot(self) -> Mapping[str, float]:
        """Return what `restore` takes."""
        return dict(self._learnt) if self._learnt else _NONE

    def restore(self, snapshot: Mapping[str, float]) -> None:
        """Forget what has been learnt since the snapshot."""
        self._learnt = dict(snapshot)

    def of(self, application: str) -> float:
        """Return the span of an application; 0 = there is none yet."""
        return self._learnt.get(application, 0.0)

    def put(self, application: str, span: float) -> None:
        """Take a span that somebody else has learnt as `learn` does."""
        self._learnt[application] = span

    def learn(self, prediction: Prediction, feedback: Feedback) -> float | None:
        """Return the span of a prediction's losses, then learn from its errors; None if there is no error."""
        errors = [*_errors(prediction, feedback.label)]
        if feedback.loss is not None or not errors:
            return None
        span = self._learnt.get(prediction.application)
        if span is None:
            span = _within(2.0 * max(errors))
            if not max(errors):
                return 1.0  # all were right: any span gives a loss of 0, and there is none to learn yet
            self._learnt[prediction.application] = span
            return span
        following = span
        for error in errors:
            following = _within(following * (_UP if error > following else _DOWN))
        self._learnt[prediction.application] = following
        return span


def _errors(prediction: Prediction, label: Value | None) -> Iterable[float]:
    """Yield the error of every model that answered with a number."""
    if not _is_number(label):
        return
    for output in prediction.outputs:
        if output.outcome is Outcome.OK and _is_number(output.answer):
            yield abs(float(output.answer) - float(label))  # type: ignore[arg-type]  # both are numbers


def _is_number(value: Value | None) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _is_read(output: ModelOutput, prediction: Prediction) -> bool:
    """Tell whether an output has what the state made of it: a number, or the item that was answered."""
    return isinstance(output.answer, float) or (bool(prediction.first) and output.answer == answered_item(prediction))


def _within(span: float) -> float:
    return min(max(span, _SMALLEST), _LARGEST)


def observation(
    prediction: Prediction,
    feedback: Feedback,
    kind: str,
    classes: Mapping[str, Sequence[str]],
    feedback_us: int,
    span: float | None = None,
) -> Observation | None:
    """Join a prediction with its feedback.

    Args:
        prediction: the answer, with every asked model's output.
        feedback: the true label, or the loss of the served answer.
        kind: of loss, as the application says: a text that `policies.loss_rules.rule` reads.
        classes: class names by `MODEL@VERSION`, for the log loss of scores.
        feedback_us: event time of the feedback.
        span: the error that costs 1, of losses that have one; None = 1.

    Returns:
        The observation, or None if no policy decided, so that nothing can be learnt.

    Raises:
        LossError: the label does not fit the answers, or neither label nor loss can be used.
    """
    decision = prediction.decision
    cost = _served_loss(prediction, feedback, kind, classes, span)
    if decision is None:
        return None
    asked = {output.model: output for output in prediction.outputs}
    if registry.answers(decision.policy):  # what came late was not read: what the state would have said is not known
        asked = {name: one for name, one in asked.items() if one.outcome is not Outcome.OK or _is_read(one, prediction)}
    losses = tuple(
        [
            _arm_loss(asked[arm], prediction, cost, feedback, kind, classes, span) if arm in asked else None
            for arm in decision.arms
        ]
    )
    return _observation(prediction, decision, losses, cost, feedback.label, JoinStatus.JOINED, feedback_us, span)


def untold(prediction: Prediction, feedback_us: int) -> Observation | None:
    """Return the observation of a ranking of whose first place nothing was told; None if no policy decided."""
    decision = prediction.decision
    if decision is None:
        return None
    unknown = (None,) * len(decision.arms)
    return _observation(prediction, decision, unknown, None, None, JoinStatus.JOINED, feedback_us)


def output_loss(
    output: ModelOutput,
    prediction: Prediction,
    feedback: Feedback,
    kind: str,
    classes: Mapping[str, Sequence[str]],
    span: float | None = None,
) -> float | None:
    """Return the loss of an output, in [0, 1]; None if it is not known. Arguments are those of `observation`.

    Raises:
        LossError: the label does not fit the answer.
    """
    served = _served_loss(prediction, feedback, kind, classes, span)
    return _arm_loss(output, prediction, served, feedback, kind, classes, span)


def default_observation(prediction: Prediction, default_loss: float | None, end_us: int) -> Observation | None:
    """Return the observation at the end of the window; None without a default loss.

    A model that answered costs the default loss. A model without an answer costs the same as with feedback.
    """
    decision = prediction.decision
    if default_loss is None or decision is None:
        return None
    asked = {output.model: _silent_loss(output, default_loss) for output in prediction.outputs}
    losses = tuple([asked.get(arm) for arm in decision.arms])
    return _observation(prediction, decision, losses, default_loss, None, JoinStatus.DEFAULT, end_us)


def _observation(
    prediction: Prediction,
    decision: Decision,
    losses: tuple[float | None, ...],
    served: float | None,
    label: Value | None,
    status: JoinStatus,
    observed_us: int,
    span: float | None = None,
) -> Observation:
    learns, ranked = learns_from_answers(decision.policy, len(decision.chosen)), prediction.ranked
    answers = _labels(prediction, decision.arms) if learns else None
    if answers is not None and registry.answers(decision.policy):
        item = answered_item(prediction)
        answers = tuple([label if prediction.first and label == item else None for label in answers])
    return Observation(
        prediction.query_id,
        prediction.application,
        prediction.context,
        decision,
        losses,
        served,
        label,
        status,
        prediction.answered_us,
        observed_us,
        answers,
        span,
        steps=prediction.steps,
        scores=_scores(prediction, decision.arms) if registry.answers(decision.policy) else None,
        first=prediction.first,
        confidence=_own_confidence(prediction, decision.policy) if status is JoinStatus.JOINED else None,
        label_set=prediction.label_set if label is not None else None,
        stages=prediction.stages,
        imputed=prediction.imputed,
        ranked=ranked if ranked is None or ranked.drawn else ranked._replace(rows=None),
        drawn=prediction.drawn,
        episode=prediction.episode,
        interval=prediction.interval if label is not None else None,
    )


def learns_from_answers(policy: str, asked: int) -> bool:
    """Tell whether a policy learns from the answers of so many models that were asked."""
    least = _judged_from(policy)
    return bool(least) and asked >= least


@lru_cache(maxsize=1024)
def _judged_from(policy: str) -> int:
    """Return how many models a policy has to ask to learn from their answers; 0 = it never does.

    The learner reports a policy that does not exist.
    """
    try:
        found = registry.parse(policy)
    except PolicyError:
        return 0
    if comes_from_outside(found):
        return 1
    return 2 if is_answer_aware(found) else int(is_choosing(found))


def _own_confidence(prediction: Prediction, policy: str) -> float | None:
    """Return how sure the one model that was asked is of its answer; None = it does not say, or there are several."""
    outputs = prediction.outputs
    if len(outputs) != 1 or (outputs[0].scores is None and outputs[0].answer.__class__ is not Tensor):
        return None
    return own_confidence(outputs[0]) if outputs[0].outcome is Outcome.OK and registry.asks_one(policy) else None


def _scores(prediction: Prediction, arms: Sequence[str]) -> tuple[Tensor | None, ...]:
    """Return what each arm's model computed, None for an arm without it."""
    computed = {output.model: output.scores for output in prediction.outputs if output.outcome is Outcome.OK}
    return tuple([computed.get(arm) for arm in arms])


def _labels(prediction: Prediction, arms: Sequence[str]) -> tuple[int | str | None, ...]:
    """Return the label that each arm answered, None for an arm without one."""
    answered = {output.model: output.answer for output in prediction.outputs if output.outcome is Outcome.OK}
    labels = [answered.get(arm) for arm in arms]
    return tuple([label if isinstance(label, int | str) else None for label in labels])


def _served_loss(
    prediction: Prediction, feedback: Feedback, kind: str, classes: Mapping[str, Sequence[str]], span: float | None
) -> float | None:
    if feedback.loss is not None:
        if not 0.0 <= feedback.loss <= 1.0:
            raise LossError(f"loss {feedback.loss} is outside [0, 1]")
        return feedback.loss
    if feedback.label is None:
        raise LossError("feedback has neither a label nor a loss")
    if rule(kind).kind == GIVEN:
        raise LossError("this application takes the loss itself as feedback, not a label")
    if prediction.answer is None:
        return None
    if prediction.first and prediction.outputs:  # of candidates: what was expected of the one that stood first
        return _loss(kind, prediction.outputs[0].answer, feedback.label, span=span)
    if rule(kind).of_scores:
        agreeing = [o for o in prediction.outputs if o.scores is not None and o.answer == prediction.answer]
        return _of_output(agreeing[0], feedback.label, kind, classes, span) if agreeing else None
    return _loss(kind, prediction.answer, feedback.label, span=span)


def _has_answered(output: ModelOutput) -> bool:
    """Tell whether there is an answer to judge: a record may say OK without holding one."""
    return output.outcome is Outcome.OK and output.answer is not None


def _tells_nothing(output: ModelOutput) -> bool:
    """Tell whether an output says nothing about its model: what was decoded in its place is another's answer."""
    return output.reconstructed or output.outcome in _TELLING_NOTHING


def _silent_loss(output: ModelOutput, default_loss: float) -> float | None:
    """Return the loss of an output without feedback."""
    if _has_answered(output):
        return default_loss
    return None if _tells_nothing(output) else max(default_loss, NO_ANSWER_LOSS)


def _arm_loss(
    output: ModelOutput,
    prediction: Prediction,
    served: float | None,
    feedback: Feedback,
    kind: str,
    classes: Mapping[str, Sequence[str]],
    span: float | None,
) -> float | None:
    if output.answer is None or output.outcome is not Outcome.OK:
        return None if _tells_nothing(output) else NO_ANSWER_LOSS
    alike = bool(prediction.first) or output.answer == prediction.answer
    if feedback.loss is not None:
        return feedback.loss if alike else None
    if alike and not rule(kind).of_scores and not isinstance(output.answer, Tensor):
        return served  # the same answer costs the same, where scores and their classes do not count
    return _of_output(output, feedback.label, kind, classes, span)


def _of_output(
    output: ModelOutput, label: Value | None, kind: str, classes: Mapping[str, Sequence[str]], span: float | None
) -> float:
    names = classes.get(topics.model_version(output.model, output.version), ())
    return _loss(kind, output.answer, label, output.scores, names, span)


def _loss(
    kind: str,
    answer: Value | None,
    label: Value | None,
    scores: Tensor | None = None,
    classes: Sequence[str] = (),
    span: float | None = None,
) -> float:
    return rule(kind).loss(answer, label, scores, classes, 1.0 if span is None else span)
