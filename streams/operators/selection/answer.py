"""From the models' outputs to the answer of a query: combined, partial, or the default with a reason.

`Substitutes` keeps a running mean output of each model. It stands in for a model that has not answered, where the
application says so (Clipper, NSDI'17 §5.2.2).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from policies.calibration import along, calibrated
from policies.combine import agrees, combine
from policies.confidence import own_confidence
from policies.contract import OwnAnswer, Reading, chooses_among, is_choosing, ranks_by
from policies.draw import uniform
from policies.errors import PolicyError
from schemas import topics
from schemas.inputs import are_rankable
from schemas.records import ModelOutput, NamedTensors, Outcome, Prediction, Ranked, Status, Tensor
from streams.operators.configuration import RUNNING_MEAN, candidate_width
from streams.operators.selection.dispatch import version_asked
from streams.operators.selection.drawn_slates import with_drawn
from streams.operators.selection.features.crosses import with_crosses

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from policies.contract import Choose, Read, VoteWeights
    from schemas.records import Model, Value
    from streams.operators.selection.pending import Lookups, Pending
    from streams.operators.selection.state_view import Arms

_OUTPUTS = 1_000  # the mean forgets older ones, because models and inputs drift
_NOT_IN_TIME = (
    Outcome.MISSING,
    Outcome.OVERLOADED,
    Outcome.EXPIRED,
)  # a model that failed on this input is not replaced by others' answers
_LABELS = 1_000  # different ones that are counted, for each model
_LONGEST = 256  # characters of one: a model may answer what a client has written

POLICY_FAILED = "policy_failed"  # somebody's own policy has raised, or said what cannot be
EXPIRED = "expired"  # why a query is answered by default whose time was over when it came
RECONSTRUCTED = "reconstructed"  # why an answer is partial that took a decoded output for a missing one

_Key: TypeAlias = tuple[str, str]  # application and model
# Why no model's output could be used, by precedence: reasons that the caller can remove come first.
_REASONS = (
    (Outcome.INVALID, "invalid_input"),
    (Outcome.UNKNOWN_VERSION, "unknown_version"),
    (Outcome.FAILED, "model_failed"),
    (Outcome.EXPIRED, "expired_in_queue"),
    (Outcome.OVERLOADED, "overloaded"),
    (Outcome.MISSING, "deadline"),
)


class _AnswerMean:
    """Of one model's outputs: the mean of numbers or scores, the most frequent label; nothing of named tensors."""

    __slots__ = ("_count", "_labels", "_mean")

    def __init__(self) -> None:
        self._labels: Counter[int | str] = Counter()
        self._mean: NDArray[np.float64] | None = None
        self._count = 0

    def add(self, answer: Value) -> None:
        if isinstance(answer, NamedTensors):
            return
        if isinstance(answer, int | str):
            self._add_label(answer)
            return
        value = np.asarray(answer.numpy() if isinstance(answer, Tensor) else answer, np.float64)
        if self._mean is None or self._mean.shape != value.shape:
            self._mean, self._count = np.zeros(value.shape), 0
        self._count = min(self._count + 1, _OUTPUTS)
        self._mean = self._mean + (value - self._mean) / self._count

    def _add_label(self, label: int | str) -> None:
        if label not in self._labels and len(self._labels) >= _LABELS:
            return
        if isinstance(label, str) and len(label) > _LONGEST:
            return
        self._labels[label] += 1
        self._count += 1
        if self._count > 2 * _OUTPUTS:
            self._labels = Counter({label: count // 2 for label, count in self._labels.items() if count > 1})
            self._count = self._labels.total()

    @property
    def value(self) -> Value | None:
        """None before the first output."""
        if self._mean is not None:
            return float(self._mean) if not self._mean.shape else Tensor.of(self._mean)
        return self._labels.most_common(1)[0][0] if self._labels else None


class Substitutes:
    """Running means by application and model: another application may ask about other inputs."""

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: dict[_Key, _AnswerMean] = {}

    def learn(self, application: str, outputs: Iterable[ModelOutput]) -> None:
        """Take outputs, in time or late: a model that is never in time has a mean, too."""
        for output in outputs:
            if output.outcome is Outcome.OK and output.answer is not None:
                key = application, output.model
                mean = self._means.get(key)
                if mean is None:
                    mean = self._means[key] = _AnswerMean()
                mean.add(output.answer)

    def fill(self, application: str, outputs: Mapping[int, ModelOutput]) -> dict[int, ModelOutput]:
        """Return the outputs with the substitute of each missing one in its place; the outcomes stay."""
        return {arm: self._filled(application, output) for arm, output in outputs.items()}

    def _filled(self, application: str, output: ModelOutput) -> ModelOutput:
        if output.reconstructed:
            return output
        mean = self._means.get((application, output.model))
        return output._replace(answer=mean.value) if mean is not None and output.outcome in _NOT_IN_TIME else output


def predicted(
    query: Pending,
    now_us: int,
    reason: str | None,
    substitutes: Substitutes,
    classes: Mapping[str, tuple[str, ...]],
    models: Mapping[str, Model],
) -> Prediction:
    """Make the answer of a query from its outputs, or its default output for the given reason.

    Args:
        query: that is answered.
        now_us: the time.
        reason: why it is answered by default; None = by its outputs.
        substitutes: for outputs that are missing.
        classes: names of the models' items, by `MODEL@VERSION`.
        models: that are deployed, by name.
    """
    if reason is None and query.follow_up is not None and query.follow_up.has_failed:
        reason = POLICY_FAILED
    try:
        if reason is None and (read := query.read) is not None:
            return _read(query, read, now_us, classes, models)
        if reason is None and (only := _only(query)) is not None:
            return _of_one(query, only, now_us)
        return _of_asked(query, now_us, reason, substitutes, _asked(query, models))
    except PolicyError:
        default = query.application.default_output if query.application else None
        outputs = tuple(_asked(query, models).values())
        return answered(query, now_us, Status.DEFAULT, POLICY_FAILED, default, 0.0, outputs)


def _only(query: Pending) -> ModelOutput | None:
    """Return the output of the one model that was asked, where it is the answer; else None."""
    if not query.is_alone or query.is_stepwise or isinstance(query.weights, OwnAnswer):
        return None
    found = query.outputs.get(query.models[0])
    return found if found is not None and found.outcome is Outcome.OK else None


def _of_asked(
    query: Pending, now_us: int, reason: str | None, substitutes: Substitutes, outputs: dict[int, ModelOutput]
) -> Prediction:
    """Make the answer of all outputs that were asked for, by arm."""
    usable = {arm: output for arm, output in outputs.items() if output.outcome is Outcome.OK or output.reconstructed}
    application = query.application
    answer: Value | None
    if usable and reason is None and application is not None:
        if application.missing == RUNNING_MEAN:
            substitutes.learn(application.name, usable.values())
            outputs = outputs if query.is_stepwise else substitutes.fill(application.name, outputs)
        answer, confidence = _answer(query.weights, outputs, usable, application.combine)
        if query.follow_up is not None and query.is_stepwise:
            confidence = query.follow_up.confidence(usable, confidence)
        elif query.is_alone and not isinstance(query.weights, OwnAnswer):
            confidence = _confidence_in_decoded(query, usable[next(iter(usable))])
        is_own = all(output.outcome is Outcome.OK for output in outputs.values())
        status = Status.COMPLETE if is_own else Status.PARTIAL
        reason = None if status is Status.COMPLETE else _why(outputs)
        if answer is None or confidence < application.confidence_floor:
            answer, status, reason = application.default_output, Status.DEFAULT, "low_confidence"
    else:
        answer = application.default_output if application else None
        confidence, status, reason = 0.0, Status.DEFAULT, reason or _why(outputs)
    return answered(query, now_us, status, reason, answer, confidence, tuple(outputs.values()))


def confidence_in(query: Pending, output: ModelOutput) -> float:
    """Return how likely the answer is right of the only model that a query asked; 1.0 where that has no scores."""
    if output.scores is None and output.answer.__class__ is not Tensor:  # as a rule
        return 1.0
    own, decision = own_confidence(output), query.decision
    if own is not None and (decision is None or query.version is not None):
        return own  # nothing is known of a version that the query names but what it says
    known = None if query.arms is None else query.arms.confidences
    if own is None or decision is None or known is None:
        return 1.0
    return calibrated(known, decision.chosen[0], own)


def _confidence_in_decoded(query: Pending, output: ModelOutput) -> float:
    """Return how likely a decoded answer is right: what its model's own ones are does not count for it."""
    right = () if query.follow_up is None else query.follow_up.right
    own = own_confidence(output) if right else None
    return confidence_in(query, output) if own is None else along(right, own)


def _of_one(query: Pending, only: ModelOutput, now_us: int) -> Prediction:
    confidence, application = confidence_in(query, only), query.application
    if application is not None and confidence < application.confidence_floor:
        default = application.default_output
        return answered(query, now_us, Status.DEFAULT, "low_confidence", default, confidence, (only,))
    return answered(query, now_us, Status.COMPLETE, None, only.answer, confidence, (only,))


def answered(
    query: Pending,
    now_us: int,
    status: Status,
    reason: str | None,
    answer: Value | None,
    confidence: float,
    outputs: tuple[ModelOutput, ...],
) -> Prediction:
    """Make the prediction of an answer, with all that is known about its query.

    Where the query names a version it has no decision, whoever was drawn: clients choose by what they ask, so feedback
    would tell of them, and not of versions or models.
    """
    return Prediction(
        query.query_id,
        query.application_name,
        query.context,
        query.decision if query.version is None else None,
        status,
        reason,
        answer,
        confidence,
        outputs,
        query.sent_us,
        query.received_us,
        query.deadline_us,
        now_us,
        query.reply_token,
        query.message,
        () if query.follow_up is None else query.follow_up.taken,
        imputed=() if query.lookups is None else query.lookups.imputed,
        drawn=query.drawn,
        episode=query.episode,
    )


def _read(
    query: Pending,
    read: Read,
    now_us: int,
    classes: Mapping[str, tuple[str, ...]],
    models: Mapping[str, Model],
) -> Prediction:
    """Let the state answer: each output has what the state makes of it, and its scores what the model computed."""
    asked = _asked(query, models)
    ok = {arm: output for arm, output in asked.items() if output.outcome is Outcome.OK}
    computed = {arm: output.scores for arm, output in ok.items() if output.scores is not None}
    found: tuple[Reading, tuple[int, ...], Ranked | None]
    if (lookups := query.lookups) is not None and lookups.ids and chooses_among(read):
        items = _items(lookups.ids, read.count, ok.values(), classes)
        if items and max(items) < 0:
            query.message = query.message or "no model knows any of the candidates by its id"
            default = query.application.default_output if query.application else None
            return answered(query, now_us, Status.DEFAULT, "not_ranked", default, 0.0, tuple(asked.values()))
        found = _chosen(query, lookups, read, computed, items)
    else:
        found = read(computed, query.features, uniform(query.arm_id, "item")), (), None
    reading, best, named = found
    for arm, output in ok.items():
        if arm in reading.answers:
            asked[arm] = output._replace(answer=reading.answers[arm])
        else:
            asked[arm] = ModelOutput(output.model, output.version, Outcome.FAILED, None)
            query.message = query.message or f"{output.model} does not compute the features of the policy"
    outputs, application = tuple(asked.values()), query.application
    answer: Value | None = Tensor.of(np.array(best, np.int64)) if best else reading.answer
    reason = None if len(reading.answers) == len(outputs) else _why(asked)
    status = Status.COMPLETE if reason is None else Status.PARTIAL
    if answer is None:
        status = Status.DEFAULT
    elif application is not None and reading.confidence < application.confidence_floor:
        status, reason = Status.DEFAULT, "low_confidence"
    if status is Status.DEFAULT:
        answer = application.default_output if application else None
    confidence = 0.0 if reading.answer is None else reading.confidence
    made = answered(query, now_us, status, reason, answer, confidence, outputs)
    if status is Status.DEFAULT or not reading.first:
        return made
    return made._replace(first=reading.first, ranked=named)


def _chosen(
    query: Pending, lookups: Lookups, read: Choose, computed: Mapping[int, Tensor], items: tuple[int, ...]
) -> tuple[Reading, tuple[int, ...], Ranked | None]:
    """Return what a state chooses among a query's candidates, places of the best, and their names.

    What no model knows is not chosen: its probability to stand first is 0.
    """
    if not items:
        return Reading(None, 0.0, {}), (), None
    places = [place for place, item in enumerate(items) if item >= 0]
    u = uniform(query.arm_id, "item")
    reading, best = read.among([items[place] for place in places], computed, query.features, lookups.top, u)
    if not best:
        return reading, (), None
    shares = [0.0] * len(items)
    for place, share in zip(places, reading.first, strict=True):
        shares[place] = share
    found = tuple([places[one] for one in best])
    return reading._replace(first=tuple(shares)), found, Ranked(lookups.ids, found[0], items)


def _items(
    ids: Sequence[str], count: int, outputs: Iterable[ModelOutput], classes: Mapping[str, tuple[str, ...]]
) -> tuple[int, ...]:
    """Return the index of each id among the items, -1 where there is none; nothing, if no model has answered for them.

    Items are called as the classes of the first model that has answered, else by their indices.
    """
    for output in outputs:
        if output.scores is not None and np.prod(output.scores.shape) == count:
            names = classes.get(topics.model_version(output.model, output.version), ())
            places = _places(names if len(names) == count else tuple(map(str, range(count))))
            return tuple([places.get(one, -1) for one in ids])
    return ()


@lru_cache(maxsize=256)
def _places(names: tuple[str, ...]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(names)}


def ranked(query: Pending, arms: Arms, now_us: int) -> Prediction | None:
    """Make the answer to a query with candidates: the places of the best ones; None if the policy cannot rank them.

    Its output is that of the first model, as if that had been asked about the candidate that stands first.
    """
    lookups, rows = query.lookups, query.candidates
    if arms.read is None or lookups is None or not isinstance(rows, Tensor):
        return None
    if query.application is not None and query.application.crosses:
        rows = with_crosses(rows, query.features, query.application, ranks_by(arms.policy))
        if not are_rankable(*rows.shape):  # crosses have made them wider
            query.message = query.message or too_many(query)
            return None
    try:
        found = arms.read.rank(rows, lookups.top, uniform(query.arm_id, "rank"))
    except PolicyError as error:
        query.message = query.message or str(error)
        return None
    if found is None:
        return None
    drawn: tuple[int, ...] = ()
    if query.application is not None and query.application.shuffle:
        found, drawn = with_drawn(found, arms.read, rows, lookups.top, query.application.shuffle, query.query_id)
    query.decision = arms.any_decision._replace(chosen=(0,), features=query.features)
    output = ModelOutput(arms.names[0], "", Outcome.OK, found.answer, Tensor.of(rows.numpy()[found.best[0]]))
    best = Tensor.of(np.array(found.best, np.int64))
    made = answered(query, now_us, Status.COMPLETE, None, best, found.confidence, (output,))
    is_kept = lookups.ids or (query.application is not None and query.application.examination)
    named = Ranked(lookups.ids, found.best[0], (), lookups.unknown, rows, drawn) if is_kept else None
    return made._replace(first=found.shares, ranked=named)


def not_ranked(query: Pending, arms: Arms) -> str:
    """Say why a query's candidates were not ranked."""
    policy, rows, width = arms.policy.name, query.candidates, ranks_by(arms.policy)
    if is_choosing(arms.policy):
        return f"the policy {policy} ranks items of its models: candidates are their ids"
    if width is None:
        return f"the policy {policy} does not rank candidates: take `ridge` or `two_speed`"
    if isinstance(rows, Tensor):
        return f"the policy {policy} ranks candidates of {width} features, and these have {rows.shape[-1]}"
    found = 0 if query.application is None else candidate_width(query.application)
    if found:
        return too_many(query)
    return (
        "the candidates are ids, and the application has no source of features whose key is candidate: give it one"
        f" under `sources`, or send rows of {width} features"
    )


def too_many(query: Pending) -> str:
    """Say that a query has more candidates than can be ranked at once."""
    application, rows = query.application, query.candidates
    found = candidate_width(application) if application is not None else 0
    width = found or (rows.shape[-1] if isinstance(rows, Tensor) else 0)
    count = rows.shape[0] if isinstance(rows, Tensor) else len(query.ids)
    shorter = ", or by shorter ids" if query.ids else ""
    return f"{count} candidates of {width} features are too many to be ranked at once: name fewer{shorter}"


def _asked(query: Pending, models: Mapping[str, Model]) -> dict[int, ModelOutput]:
    """Return the output of every chosen arm: MISSING where nothing arrived, OVERLOADED where it was not asked.

    Where the query has chosen, there is no decision, and it has asked one model. What is missing names the version that
    was asked: its silence counts for it.
    """
    decision = query.decision
    chosen = [*enumerate(query.models)] if decision is None else [(arm, decision.arms[arm]) for arm in decision.chosen]
    return {arm: query.outputs.get(name) or without(query, name, models) for arm, name in chosen}


def without(query: Pending, model: str, models: Mapping[str, Model], row_id: str = "") -> ModelOutput:
    """Return what stands for the output of a model that has not come, or that was not asked.

    Args:
        query: that is answered without it.
        model: name.
        models: that are deployed, by name.
        row_id: under which the model was asked; empty = the query's.
    """
    if model not in query.models and not row_id:
        return ModelOutput(model, "", Outcome.OVERLOADED, None)
    version = version_asked(query, models.get(model), row_id or query.row_id)
    return ModelOutput(model, version, Outcome.MISSING, None)


def _answer(
    weights: Sequence[float] | VoteWeights | OwnAnswer,
    asked: Mapping[int, ModelOutput],
    usable: Mapping[int, ModelOutput],
    how: str,
) -> tuple[Value | None, float]:
    """Return answer and confidence: the policy's own, or those of a vote.

    Raises:
        PolicyError: the policy has none.
    """
    return weights.combine(asked) if isinstance(weights, OwnAnswer) else _combined(weights, asked, usable, how)


def _combined(
    weights: Sequence[float] | VoteWeights,
    asked: Mapping[int, ModelOutput],
    usable: Mapping[int, ModelOutput],
    how: str,
) -> tuple[Value, float]:
    """Combine by weight; a model that did not answer lowers the confidence, even if a substitute stands in."""
    votes = weights({arm: output.answer for arm, output in asked.items()}) if callable(weights) else weights
    answers = {arm: output.answer for arm, output in asked.items() if output.answer is not None}
    answer, agreeing = combine({arm: votes[arm] for arm in answers}, answers, how)
    total = sum(votes[arm] for arm in asked)
    if len(answers) == len(usable):
        return answer, agreeing * sum(votes[arm] for arm in answers) / total
    return answer, sum(votes[arm] for arm in usable if agrees(answers[arm], answer)) / total


def missing_of(query: Pending) -> list[str]:
    """Return the models whose own outputs will be of use when they come after the answer: of an ensemble, or coded."""
    outputs = query.outputs
    if len(query.models) == 1:
        return [model for model, output in outputs.items() if output.reconstructed]
    return [model for model in query.models if model not in outputs or outputs[model].reconstructed]


def _why(outputs: Mapping[int, ModelOutput]) -> str:
    outcomes = {output.outcome for output in outputs.values() if not output.reconstructed}
    reconstructed = RECONSTRUCTED if any(output.reconstructed for output in outputs.values()) else "deadline"
    return reason_of(outcomes) or reconstructed


def reason_of(outcomes: Container[Outcome]) -> str | None:
    """Return why outputs with these outcomes are not all there; None if none of them says so."""
    return next((reason for outcome, reason in _REASONS if outcome in outcomes), None)
