"""What a mistake costs: the losses that have a name alone, and rules that say costs in a unit.

    zero_one, absolute, squared, log, given      by name, as `policies.losses` has them
    {cost: {fraud: {ok: 40}, ok: {fraud: 1}}}    what each mistake costs, by the true class and the answer
    {quantile: 0.9}                              errors of numbers, by their direction
    {asymmetric: {over: 1, under: 4}}            likewise
    {relative: {least: 10}}                      errors as parts of what is true
    cosine                                       how far two vectors point apart
    {fields: {tolerance: 0.05}}                  the share of an answer's fields that differ
    {outputs: {each: {boxes: absolute}}}         the weighted mean of an answer's named outputs, each by a rule
    {own: my_pkg.losses:cost}                    a function of one's own; its path alone is the same
    {zero_one: 12, unit: EUR}                    a name with what a loss of 1 costs; also `given`

Whatever the rule, policies learn from a loss in [0, 1]. It is the cost divided by its `worth`, what a loss of 1 costs:
the worst cell of the matrix, or the cost of an error of one span. What costs more counts as 1. So the cost in its unit
is loss x worth. The worth travels in the observation, because spans may be learnt and rules change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policies import losses, own_loss
from policies.cosine_loss import cosine
from policies.cost_matrix import CostMatrix
from policies.directed_loss import Directed, Relative
from policies.errors import LossError, PolicyError, require
from policies.fields_loss import FieldShare
from policies.outputs_loss import OutputLosses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Tensor, Value

    Judge = Callable[[Value | None, Value | None, Tensor | None, Sequence[str], float], float]

OWN: Final = "own"
UNIT, SPAN = "unit", "span"
_MOST_TEXT: Final = 65_536  # characters of a rule: it is a part of a record
_REMEMBERED: Final = 1_024
_LARGEST: Final = 1e300  # worth, which has to stay finite


@dataclass(frozen=True, slots=True)
class LossRule:
    """How an answer's loss follows from the label.

    Attributes:
        kind: of loss.
        judge: returns the loss of an answer, in [0, 1].
        unit: of costs; empty = none was said.
        most: what a loss of 1 costs for a span of 1; None = the loss has a name alone, and no costs are reported.
        power: of the span in what a loss of 1 costs.
        span: the span where none is given; None = it is learnt, if there is one.
        names: what it names of somebody's own, a path; empty = nothing.
        outputs: the names of the answer's outputs that it judges; none = it judges the answer.
    """

    kind: str
    judge: Judge
    unit: str = ""
    most: float | None = None
    power: int = 0
    span: float | None = None
    names: str = ""
    outputs: tuple[str, ...] = ()

    @property
    def has_span(self) -> bool:
        """Whether errors have a size."""
        return self.kind in _SPANNED

    @property
    def of_scores(self) -> bool:
        """Whether it judges the scores of one model, and not its answer."""
        return self.kind == "log"

    def worth(self, span: float | None) -> float | None:
        """Return what a loss of 1 costs, in the unit; None = it has none, or the span is not known."""
        if self.most is None or (self.power and span is None):
            return None
        return min(self.most * (span or 1.0) ** self.power, _LARGEST)

    def loss(
        self,
        answer: Value | None,
        label: Value | None,
        scores: Tensor | None = None,
        classes: Sequence[str] = (),
        span: float = 1.0,
    ) -> float:
        """Return the loss of an answer in [0, 1].

        Args:
            answer: what the model said.
            label: what was true; for `given` the loss.
            scores: one score a class where the model gives them; for `log` probabilities, shape (k,).
            classes: name of each score's class.
            span: the error that costs 1, positive.

        Raises:
            LossError: the label does not fit the answer or the rule.
        """
        return self.judge(answer, label, scores, classes, span)


class WrittenLoss(NamedTuple):
    """A rule as an application's record has it: its text, and the span that was given with it."""

    text: str
    span: float | None


def written(given: object) -> WrittenLoss:
    """Return a rule as a record has it; of one that is written already, the same.

    Args:
        given: a name, a dotted path, or a mapping of one kind to its parameters, with `unit` and `span`.

    Raises:
        PolicyError: it is none; the message says what to change.
    """
    if isinstance(given, str):
        if given.lstrip()[:1] == "{":
            return written(_read(given))
        rule(given)
        return WrittenLoss(given, None)
    if not isinstance(given, dict):
        raise PolicyError(
            f"loss {given!r}: write a name ({', '.join(losses.LOSSES)}) or a mapping such as"
            " {cost: {fraud: {ok: 40}, ok: {fraud: 1}}}"
        )
    parts = {str(key): value for key, value in given.items() if key != SPAN}
    text = json.dumps(_plain(parts), sort_keys=True, separators=(",", ":"), allow_nan=False)
    made = rule(text)
    span = None if given.get(SPAN) is None else _width(given[SPAN])
    require(span is None or made.has_span, f"loss {made.kind}: it has no span, as no error of it has a size")
    return WrittenLoss(text, span)


@lru_cache(_REMEMBERED)
def rule(text: str) -> LossRule:
    """Return the rule of a text; nothing is imported.

    Raises:
        PolicyError: there is none.
    """
    if text in losses.LOSSES:
        return LossRule(text, _plain_judge(text))
    require(len(text) <= _MOST_TEXT, f"loss: it takes {len(text):,} characters, of {_MOST_TEXT:,} that fit")
    if text in _ALONE:
        return MAKERS[text](True, "")
    if text.lstrip()[:1] != "{":
        return _own(text, "")
    try:
        return _made(_read(text))
    except (OverflowError, RecursionError) as error:  # numbers of 400 digits, a thousand levels of braces
        raise PolicyError(f"loss {text!r:.80}: its numbers or levels are beyond measure ({error})") from error


def _made(given: dict[str, Any]) -> LossRule:
    unit = given.pop(UNIT, "")
    require(isinstance(unit, str) and len(unit) <= 16, f"loss: unit is {unit!r}; make it a short text such as EUR")
    require(len(given) == 1, f"loss: name one of {', '.join(MAKERS)}, not {', '.join(given) or 'none'}")
    ((kind, parameters),) = given.items()
    require(kind in MAKERS, f"loss: there is no {kind!r}; there are: {', '.join(MAKERS)}")
    return MAKERS[kind](parameters, unit)


def unit_of(text: str) -> str:
    """Return the unit of costs of a rule; empty = it has none, or there is no such rule."""
    try:
        return rule(text).unit
    except PolicyError:
        return ""


def kind_named(text: str) -> str:
    """Return the kind of a rule; empty = there is no such rule."""
    try:
        return rule(text).kind
    except PolicyError:
        return ""


def fault(text: str) -> str:
    """Return what speaks against a rule, empty = nothing; what it names of somebody's own is imported."""
    try:
        made = rule(text)
    except PolicyError as error:
        return str(error)
    return own_loss.fault_of(made.names) if made.names else ""


def _read(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise PolicyError(f"loss {text!r:.80} is no JSON object ({error})") from error
    require(isinstance(given, dict), f"loss {text!r:.80} is no JSON object")
    return dict(given)


def _plain(value: Any) -> Any:
    """Return what JSON can hold of what YAML read; keys as classes are named."""
    if not isinstance(value, dict):
        return value
    return {_key(key): _plain(inner) for key, inner in value.items()}


def _key(key: Any) -> str:
    if isinstance(key, bool):
        raise PolicyError(f"loss: the class {key} is a yes or no of YAML: put it in quotes")
    return losses.class_text(key) if isinstance(key, str | int | float) else str(key)


def _width(span: Any) -> float:
    """Return the error that costs 1: a number, or the width of the range in which the numbers lie."""
    if isinstance(span, list | tuple) and len(span) == 2 and all(map(_is_number, span)):
        span = span[1] - span[0]
    require(_is_number(span) and 0.0 < span < inf, f"loss: span is {span!r}; make it a positive number, or [low, high]")
    return float(span)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(kind: str, value: Any) -> float:
    require(_is_number(value) and 0.0 < value < inf, f"loss {kind}: {value!r} is no positive number")
    return float(value)


def _plain_judge(kind: str) -> Judge:
    def judge(
        answer: Value | None, label: Value | None, scores: Tensor | None, classes: Sequence[str], span: float
    ) -> float:
        return losses.loss(kind, answer, label, scores, classes, span=span)

    return judge


def _named(kind: str) -> Callable[[Any, str], LossRule]:
    """Return what makes a rule of a loss with a name: of `zero_one` and `given` with what a loss of 1 costs."""

    def make(parameters: Any, unit: str) -> LossRule:
        is_priced = kind in ("zero_one", "given")
        wanted = "true, or what a loss of 1 costs" if is_priced else "true"
        require(parameters is True or (is_priced and _is_number(parameters)), f"loss {kind}: write {kind}: {wanted}")
        most = 1.0 if parameters is True else _positive(kind, parameters)
        if kind == "log":
            most, unit = -log(losses.SMALLEST_PROBABILITY), unit or "nats"
        power = {"absolute": 1, "squared": 2}.get(kind, 0)
        return LossRule(kind, _plain_judge(kind), unit, most, power)

    return make


def _cost(parameters: Any, unit: str) -> LossRule:
    matrix = CostMatrix(parameters)
    return LossRule(
        "cost", lambda answer, label, _, classes, __: matrix.loss(answer, label, classes), unit, matrix.most
    )


def _quantile(parameters: Any, unit: str) -> LossRule:
    is_share = _is_number(parameters) and 0.0 < parameters < 1.0
    require(is_share, f"loss quantile: {parameters!r} does not lie between 0 and 1")
    return _directed("quantile", Directed(1.0 - parameters, float(parameters)), unit)


def _asymmetric(parameters: Any, unit: str) -> LossRule:
    is_pair = isinstance(parameters, dict) and {*parameters} == {"over", "under"}
    require(
        is_pair and all(map(_is_number, parameters.values())), "loss asymmetric: write {over: NUMBER, under: NUMBER}"
    )
    return _directed("asymmetric", Directed(float(parameters["over"]), float(parameters["under"])), unit)


def _directed(kind: str, made: Directed, unit: str) -> LossRule:
    return LossRule(kind, lambda answer, label, _, __, span: made.loss(answer, label, span), unit, made.most, 1)


def _relative(parameters: Any, unit: str) -> LossRule:
    given = {} if parameters is True else parameters
    is_known = isinstance(given, dict) and {*given} <= {"least"} and all(map(_is_number, given.values()))
    require(is_known, "loss relative: write true, or {least: NUMBER}")
    made = Relative(float(given.get("least", 0.0)))
    return LossRule(
        "relative", lambda answer, label, _, __, span: made.loss(answer, label, span), unit, 1.0, power=1, span=1.0
    )


def _own(parameters: Any, unit: str) -> LossRule:
    path = str(parameters)
    if path.count(":") != 1 or not all(part.replace(".", "_").isidentifier() for part in path.split(":")):
        raise PolicyError(f"its loss {path!r:.80} is none of {', '.join(losses.LOSSES)}, nor PACKAGE.MODULE:FUNCTION")

    def judge(answer: Value | None, label: Value | None, _: Tensor | None, __: Sequence[str], span: float) -> float:
        if answer is None:
            raise LossError("the answer is nothing")
        return min(1.0, own_loss.cost(path, label, answer) / span)

    return LossRule(OWN, judge, unit, 1.0, power=1, span=1.0, names=path)


def _cosine(parameters: Any, unit: str) -> LossRule:
    require(parameters is True and not unit, "loss cosine: write cosine: true, without a unit")
    return LossRule("cosine", lambda answer, label, _, __, ___: cosine(answer, label))


def _fields(parameters: Any, unit: str) -> LossRule:
    given = {} if parameters is True else parameters
    is_known = isinstance(given, dict) and {*given} <= {"names", "tolerance"} and not unit
    require(is_known, "loss fields: write true, or {names: [FIELD, ...], tolerance: PART}, without a unit")
    names, tolerance = given.get("names", []), given.get("tolerance", 0.0)
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    require(is_list, f"loss fields: names is {names!r:.40}; make it a list of texts such as [total, at.x]")
    require(_is_number(tolerance), f"loss fields: tolerance is {tolerance!r:.40}; make it a number")
    made = FieldShare(tuple(names), float(tolerance))
    return LossRule("fields", lambda answer, label, _, __, ___: made.loss(answer, label))


def _outputs(parameters: Any, unit: str) -> LossRule:
    is_known = isinstance(parameters, dict) and "each" in parameters and {*parameters} <= {"each", "weights"}
    wanted = "write {each: {OUTPUT: LOSS, ...}, weights: {OUTPUT: NUMBER}}, without a unit"
    require(is_known and not unit, f"loss outputs: {wanted}")
    each, weights = parameters["each"], parameters.get("weights", {})
    require(isinstance(each, dict) and isinstance(weights, dict), f"loss outputs: {wanted}")
    parts = {name: _part(name, one) for name, one in each.items()}
    made = OutputLosses(parts, {name: _positive("outputs", weight) for name, weight in weights.items()})
    return LossRule("outputs", lambda answer, label, _, __, ___: made.loss(answer, label), outputs=tuple(parts))


def _part(name: str, given: Any) -> Callable[[Value | None, Value | None], float]:
    """Return the loss of one output: a rule, with its own span where errors have a size."""
    require(isinstance(given, str | dict), f"loss outputs: {name} is {given!r:.40}; write a loss of its own")
    text, span = written(given)
    found = rule(text)
    require(not found.names, f"loss outputs: {name} names a function of yours: let one function judge all outputs")
    require(not found.unit or found.of_scores, f"loss outputs: {name} has a unit, and their mean has none")
    width = span or found.span or 1.0
    return lambda answer, label: found.loss(answer, label, span=width)


MAKERS: Final[Mapping[str, Callable[[Any, str], LossRule]]] = {
    **{name: _named(name) for name in losses.LOSSES},
    "cost": _cost,
    "quantile": _quantile,
    "asymmetric": _asymmetric,
    "relative": _relative,
    "cosine": _cosine,
    "fields": _fields,
    "outputs": _outputs,
    OWN: _own,
}
_ALONE: Final = frozenset({"relative", "cosine", "fields"})  # names that need no parameters
_SPANNED: Final = frozenset({"absolute", "squared", "quantile", "asymmetric", "relative", OWN})
