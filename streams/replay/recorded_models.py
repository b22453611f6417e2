"""Models that answer as they did in a trace: the outputs that were recorded, by model and input, and their times.

A model's output follows from its input: what it said to one query counts for all queries with that input. What it was
never asked the model itself answers, if it is at hand. Else the row is not answerable: it is answered as `invalid`,
which teaches nothing about the model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.records import ModelOutput, Outcome, Tensor
from streams.operators.contract import Predicted
from streams.testing import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, ModelPredictions, Prediction
    from streams.operators.contract import Predict

NOT_RECORDED: Final = "the trace does not say what this model answers to this input"
_TELLING: Final = (Outcome.OK, Outcome.FAILED, Outcome.INVALID)
_SAMPLES: Final = 4_096  # of each size of batches, the latest
_UNKNOWN_US: Final = 1_000  # of a model of which no time was recorded


@dataclass(slots=True)
class RecordedModels:
    """What models have answered, and how long their batches took.

    Attributes:
        running: models that are at hand, by name: each returns what it answers, and how long that took (us).
    """

    running: Mapping[str, Callable[[Sequence[Input]], tuple[Predicted, int]]] = field(default_factory=dict)
    _outputs: dict[tuple[str, Input], ModelOutput] = field(default_factory=dict)
    _times_us: defaultdict[str, defaultdict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _turns: dict[str, int] = field(default_factory=dict)
    _measured: set[str] = field(default_factory=set)  # models of which no times are recorded

    def learn(self, prediction: Prediction, given: Input) -> None:
        """Take the outputs of a prediction to this input."""
        for output in prediction.outputs:
            if output.outcome in _TELLING:
                self._outputs[output.model, given] = output

    def learn_time(self, batch: ModelPredictions) -> None:
        """Take how long a batch took."""
        times = self._times_us[batch.model][batch.batch_rows]
        if batch.batch_rows and len(times) < _SAMPLES:
            times.append(batch.predict_us)

    def knows(self, model: str, given: Input) -> bool:
        """Tell whether a model's answer to an input is recorded."""
        return (model, given) in self._outputs

    def service(self, model: str) -> Service:
        """Return a model for the driver."""

        def predict(batch: Predict) -> tuple[Predicted, int]:
            self._run(model, batch)
            found = [self._outputs.get((model, given)) for given in batch.rows]
            return _predicted(found), self._took_us(model, len(found))

        return Service(predict)

    def _run(self, model: str, batch: Predict) -> None:
        """Have a model that is at hand answer what is not recorded; its times count where none are recorded."""
        rows = [given for given in batch.rows if (model, given) not in self._outputs]
        if not rows or model not in self.running:
            return
        predicted, took_us = self.running[model](rows)
        if model in self._measured or model not in self._times_us:
            self._measured.add(model)
            self._times_us[model][len(rows)].append(took_us)
        for given, output in zip(rows, outputs_of_run(model, batch.version, predicted), strict=True):
            self._outputs[model, given] = output

    def _took_us(self, model: str, rows: int) -> int:
        """Return the time of a batch: the recorded ones of the nearest size, in turn."""
        by_size = self._times_us.get(model)
        if not by_size:
            return _UNKNOWN_US
        times = by_size[min(by_size, key=lambda size: (abs(size - rows), size))]
        turn = self._turns[model] = self._turns.get(model, -1) + 1
        return times[turn % len(times)] if times else _UNKNOWN_US


def _predicted(found: Sequence[ModelOutput | None]) -> Predicted:
    outcomes = tuple([Outcome.INVALID if output is None else output.outcome for output in found])
    answers = [0 if output is None or output.outcome is not Outcome.OK else output.answer for output in found]
    messages = {row: NOT_RECORDED for row, output in enumerate(found) if output is None}
    reasons = dict.fromkeys((row for row, outcome in enumerate(outcomes) if outcome is Outcome.INVALID), "recorded")
    texts = any(isinstance(answer, str) for answer in answers)
    return Predicted(
        outcomes,
        tuple(map(str, answers)) if texts else np.array(answers),
        _scores(found),
        reasons,
        messages=messages,
    )


def outputs_of_run(model: str, version: str, predicted: Predicted) -> Iterator[ModelOutput]:
    """Yield the output of each row that a model has answered."""
    answers = predicted.answers if isinstance(predicted.answers, tuple) else predicted.answers.tolist()
    for row, (outcome, answer) in enumerate(zip(predicted.outcomes, answers, strict=True)):
        is_ok = outcome is Outcome.OK
        scores = Tensor.of(predicted.scores[row]) if is_ok and predicted.scores is not None else None
        yield ModelOutput(model, version, outcome, answer if is_ok else None, scores)


def _scores(found: Sequence[ModelOutput | None]) -> NDArray[np.generic] | None:
    """Return the scores of a batch, a row each; None where some row that was answered has none."""
    given = [output.scores for output in found if output is not None and output.outcome is Outcome.OK]
    if not given or not all(isinstance(scores, Tensor) for scores in given):
        return None
    shape = given[0].numpy().shape if given[0] is not None else ()
    rows = [
        output.scores.numpy() if output is not None and output.scores is not None else np.zeros(shape)
        for output in found
    ]
    return np.stack(rows).astype(given[0].dtype if given[0] is not None else None)
