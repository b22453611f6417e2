"""Models that answer as they did in a trace: the outputs that were recorded, by model and input, and their times.

A model's output follows from its input: what it said to one query counts for all queries with that input. What it was
never asked the model itself answers, if it is at hand. Else the row is not answerable: it is answered as `invalid`,
which teaches nothing about the model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.records import DENSE, ModelOutput, NamedTensors, Outcome, Tensor, element
from streams.operators.contract import Predicted
from streams.replay.untaped.run_again import outputs_of_run
from streams.testing import ModelBehaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Element, Input, ModelPredictions, Prediction, Value
    from streams.operators.contract import Predict

NOT_RECORDED: Final = "the trace does not say what this model answers to this input"
_TELLING: Final = (Outcome.OK, Outcome.FAILED, Outcome.INVALID)
_SAMPLES: Final = 4_096  # of each size of batches, the latest
_UNKNOWN_US: Final = 1_000  # of a model of which no time was recorded
_KEY_BYTES: Final = 16  # of a digest: among 10^9 inputs no two are taken for one


def key_of(given: Input) -> bytes:
    """Return a digest of an input; a million inputs themselves would take too much memory."""
    if isinstance(given, DENSE):
        return blake2b(given.data, digest_size=_KEY_BYTES, person=_form(given.dtype, given.shape)).digest()
    data, form = (given.encode(), b"text") if isinstance(given, str) else (given, b"bytes")
    return blake2b(data, digest_size=_KEY_BYTES, person=form).digest()


@lru_cache(256)
def _form(dtype: Element, shape: tuple[int, ...]) -> bytes:
    return blake2b(f"{dtype}{shape}".encode(), digest_size=_KEY_BYTES).digest()


@dataclass(slots=True)
class RecordedModels:
    """What models have answered, and how long their batches took.

    Attributes:
        running: models that are at hand, by name: each returns what it answers, and how long that took (us).
    """

    running: Mapping[str, Callable[[Sequence[Input]], tuple[Predicted, int]]] = field(default_factory=dict)
    _outputs: defaultdict[str, dict[bytes, ModelOutput]] = field(default_factory=lambda: defaultdict(dict))
    _alike: dict[ModelOutput, ModelOutput] = field(default_factory=dict)  # one object for all that are equal
    _times_us: defaultdict[str, defaultdict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _measured: set[str] = field(default_factory=set)  # models of which no times are recorded

    def learn(self, prediction: Prediction, key: bytes) -> None:
        """Take the outputs of a prediction to the input with this key."""
        for output in prediction.outputs:
            if output.outcome in _TELLING:
                self._outputs[output.model][key] = self._alike.setdefault(output, output)

    def learn_time(self, batch: ModelPredictions) -> None:
        """Take how long a batch took."""
        times = self._times_us[batch.model][batch.batch_rows]
        if batch.batch_rows and len(times) < _SAMPLES:
            times.append(batch.predict_us)

    def times_us(self) -> dict[str, dict[int, list[int]]]:
        """Return the times that have been learnt, by model and rows."""
        return {model: dict(by_rows) for model, by_rows in self._times_us.items()}

    def learn_times(self, times_us: Mapping[str, Mapping[int, list[int]]]) -> None:
        """Take what another has learnt."""
        for model, by_rows in times_us.items():
            self._times_us[model].update(by_rows)

    def knows(self, model: str, key: bytes) -> bool:
        """Tell whether a model's answer to an input is recorded."""
        return key in self._outputs[model]

    def knows_all(self, model: str, keys: Iterable[bytes]) -> bool:
        """Tell whether a model's answers to all these inputs are recorded."""
        return all(map(self._outputs[model].__contains__, keys))

    def service(self, model: str) -> ModelBehaviour:
        """Return a model for the driver; it begins with the first time that is recorded."""
        outputs, turn = self._outputs[model].get, count()

        def predict(batch: Predict) -> tuple[Predicted, int]:
            keys = [key_of(given) for given in batch.rows]
            found = [outputs(key) for key in keys]
            if model in self.running and None in found:
                self._run(model, batch, keys)
                found = [outputs(key) for key in keys]
            return _predicted(found), self._took_us(model, len(found), next(turn))

        return ModelBehaviour(predict)

    def _run(self, model: str, batch: Predict, keys: Sequence[bytes]) -> None:
        """Have a model that is at hand answer what is not recorded; its times count where none are recorded."""
        known = self._outputs[model]
        rows = {key: given for key, given in zip(keys, batch.rows, strict=True) if key not in known}
        predicted, took_us = self.running[model]([*rows.values()])
        if model in self._measured or model not in self._times_us:
            self._measured.add(model)
            self._times_us[model][len(rows)].append(took_us)
        known.update(zip(rows, outputs_of_run(model, batch.version, predicted), strict=True))

    def _took_us(self, model: str, rows: int, turn: int) -> int:
        """Return the time of a batch: the recorded ones of the nearest size, in turn."""
        by_size = self._times_us.get(model)
        if not by_size:
            return _UNKNOWN_US
        nearest = rows if rows in by_size else min(by_size, key=lambda size: (abs(size - rows), size))
        times = by_size[nearest]
        return times[turn % len(times)] if times else _UNKNOWN_US


def _predicted(found: Sequence[ModelOutput | None]) -> Predicted:
    if all(output is not None and output.outcome is Outcome.OK for output in found):
        outcomes: tuple[Outcome, ...] = (Outcome.OK,) * len(found)
        return Predicted(outcomes, _column([output.answer for output in found if output is not None]), _scores(found))
    outcomes = tuple([Outcome.INVALID if output is None else output.outcome for output in found])
    answers = [0 if output is None or output.outcome is not Outcome.OK else output.answer for output in found]
    messages = {row: NOT_RECORDED for row, output in enumerate(found) if output is None}
    reasons = dict.fromkeys((row for row, outcome in enumerate(outcomes) if outcome is Outcome.INVALID), "recorded")
    return Predicted(outcomes, _column(answers), _scores(found), reasons, messages=messages)


def _column(answers: Sequence[Value | None]) -> tuple[str, ...] | NDArray[np.generic]:
    if any(isinstance(answer, str) for answer in answers):
        return tuple(map(str, answers))
    named = next((answer for answer in answers if isinstance(answer, NamedTensors)), None)
    if named is not None:
        blank = np.zeros((), element(named.dtype))
        return np.stack([each.numpy() if isinstance(each, NamedTensors) else blank for each in answers])
    return np.array(answers)


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
