"""Which error costs a full loss where losses are of numbers: what the application says, or what its errors have been.

span      = the application's; else learnt: nine of ten errors are below it
first one = twice the first error, so that it costs a half and tells nothing yet
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from schemas.records import Outcome
from streams.operators.counters import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.records import Feedback, Prediction, Value

KINDS = frozenset(("absolute", "squared"))
# Not .95: a bad model that is only tried now and then must not set the scale of the good ones' losses.
_QUANTILE = 0.9
# A tenth: it follows a change by a factor of ten within some 25 errors, and moves by 1 % where errors stay below it.
_STEP = 0.1
_UP, _DOWN = 1.0 + _STEP * _QUANTILE, 1.0 - _STEP * (1.0 - _QUANTILE)
_NONE: Mapping[str, float] = {}
_SMALLEST, _LARGEST = 1e-300, 1e300  # so that it neither ends nor overflows


class Spans:
    """The spans that are learnt, by application; the same errors in the same order give the same ones."""

    __slots__ = ("_learnt",)

    def __init__(self) -> None:
        self._learnt: dict[str, float] = {}

    def rendered(self) -> dict[str, float]:
        """Return `learnt_span` by application."""
        return {render(("learnt_span", "application", name)): span for name, span in self._learnt.items()}

    def mark(self) -> Mapping[str, float]:
        """Return what `restore` takes."""
        return dict(self._learnt) if self._learnt else _NONE

    def restore(self, mark: Mapping[str, float]) -> None:
        """Forget what has been learnt since the mark."""
        self._learnt = dict(mark)

    def learn(self, prediction: Prediction, feedback: Feedback) -> float | None:
        """Return the span of a prediction's losses, then learn from its errors; None where there is no error."""
        errors = [*_errors(prediction, feedback.label)]
        if feedback.loss is not None or not errors:
            return None
        span = self._learnt.get(prediction.application)
        if span is None:
            span = _within(2.0 * max(errors))
            if not max(errors):
                return 1.0  # all were right: any span says so, and there is none to learn yet
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


def _within(span: float) -> float:
    return min(max(span, _SMALLEST), _LARGEST)
