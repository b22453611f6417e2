"""What a loss of somebody's own promises, each as one sentence, and whether it holds on some labels and answers.

`skysail loss check` tells the verdicts. A loss judges pairs of one kind, such as numbers, and need not take others.
"""

from __future__ import annotations

import pickle
from inspect import signature
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from policies.foreign import pass_on_interrupt, told
from policies.laws import LawVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Pair = tuple[Any, Any]
    Judge = Callable[[Any, Any], Any]

NUMBERS: Final = (0, 1, 7, -3.5, 0.25, 1e6)
TEXTS: Final = ("ok", "fraud", "the cat sat", "a dog sat down", "")
ARRAYS: Final = (np.array([0.25, 0.75]), np.array([1.0, 0.0]))
SAMPLES: Final = {
    kind: tuple([(label, answer) for label in values for answer in values])
    for kind, values in (("numbers", NUMBERS), ("texts", TEXTS), ("arrays", ARRAYS))
}


class JudgedPairs(NamedTuple):
    """What became of the pairs of one kind: the cost of each, or why the first has none."""

    pairs: Sequence[Pair]
    costs: tuple[float, ...] = ()
    fault: str = ""


def judged(judge: Judge, pairs: Sequence[Pair]) -> JudgedPairs:
    """Return the costs of pairs; what a stranger's code raises or returns wrongly ends it."""
    costs = []
    for label, answer in pairs:
        try:
            costs.append(float(judge(label, answer)))
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's code does
            pass_on_interrupt(error)
            return JudgedPairs(pairs, tuple(costs), f"label {label!r:.40}, answer {answer!r:.40}: {told(error)}")
    return JudgedPairs(pairs, tuple(costs))


def taken(judge: Judge, pairs: Sequence[Pair] = ()) -> dict[str, JudgedPairs]:
    """Return the kinds that a loss takes, of those that are tried; of none, all with their faults."""
    tried = {"given": pairs} if pairs else SAMPLES
    found = {kind: judged(judge, each) for kind, each in tried.items()}
    return {kind: one for kind, one in found.items() if not one.fault} or found


def verdicts(judge: Judge, found: dict[str, JudgedPairs], span: float) -> Iterator[LawVerdict]:
    """Yield what becomes of each promise; a fault of None = nothing can be said.

    Args:
        judge: the loss.
        found: what `taken` returned.
        span: the cost that counts as a loss of 1.
    """
    yield LawVerdict("It is a function of the label and the answer, in this order.", _form(judge))
    faults = [one.fault for one in found.values() if one.fault]
    yield LawVerdict("It judges numbers, texts or arrays.", faults[0] if faults else "")
    if faults:
        return
    costs = [cost for one in found.values() for cost in one.costs]
    wrong = [cost for cost in costs if not isfinite(cost) or cost < 0.0]
    yield LawVerdict("Costs are finite numbers, 0 at least.", f"it returned {wrong[0]}" if wrong else "")
    yield LawVerdict("Asked again it says the same.", _again(judge, found))
    yield LawVerdict("It changes nothing that it is given.", _untouched(judge, found))
    priced = [cost for cost in costs if cost > 0.0]
    over = sum(cost > span for cost in priced)
    if not priced:
        yield LawVerdict("Some mistake costs something.", "all of these cost 0")
    elif over == len(priced):
        fault = f"each of these {over} costs more than the span of {span:g}, so all would cost 1: make it larger"
        yield LawVerdict("Costs are told apart within the span.", fault)
    else:
        yield LawVerdict("Costs are told apart within the span.", "")


def cut(found: dict[str, JudgedPairs], span: float) -> int:
    """Return how many costs are above the span, and count as 1."""
    return sum(cost > span for one in found.values() for cost in one.costs)


def _form(judge: Judge) -> str:
    try:
        signature(judge).bind(0, 0)
    except TypeError as error:
        return f"it cannot be called with two values: {error}"
    except ValueError:  # of a function in C, which does not say what it takes
        return ""
    return ""


def _again(judge: Judge, found: dict[str, JudgedPairs]) -> str:
    for one in found.values():
        for pair, first, second in zip(one.pairs, one.costs, judged(judge, one.pairs).costs, strict=False):
            if first != second:
                return f"label {pair[0]!r:.40}, answer {pair[1]!r:.40} cost {first}, then {second}"
    return ""


def _untouched(judge: Judge, found: dict[str, JudgedPairs]) -> str:
    for one in found.values():
        for pair in one.pairs:
            before = pickle.dumps(pair)
            judged(judge, (pair,))
            if pickle.dumps(pair) != before:
                return f"label and answer {pickle.loads(before)!r:.80} became {pair!r:.80}"  # noqa: S301 - its own
    return ""
