"""What stands in for a model that has not answered: its running mean output (Clipper, NSDI'17 §5.2.2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from schemas.records import Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from schemas.records import ModelOutput, Value

_OUTPUTS = 1_000  # the mean forgets older ones: models and what they are asked drift
_NOT_IN_TIME = (
    Outcome.MISSING,
    Outcome.OVERLOADED,
    Outcome.EXPIRED,
)  # a model that failed on this input is not replaced by others' answers
_LABELS = 1_000  # different ones that are counted, for each model


class _Mean:
    """Of one model's outputs: the mean of numbers or scores, the most frequent label."""

    __slots__ = ("_count", "_labels", "_mean")

    def __init__(self) -> None:
        self._labels: Counter[int | str] = Counter()
        self._mean: NDArray[np.float64] | None = None
        self._count = 0

    def add(self, answer: Value) -> None:
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


_Key: TypeAlias = tuple[str, str]  # application and model


class StandIns:
    """Running means by application and model: another application may ask about other inputs."""

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: dict[_Key, _Mean] = {}

    def learn(self, application: str, outputs: Iterable[ModelOutput]) -> None:
        """Take outputs, in time or late: a model that is never in time has a mean, too."""
        for output in outputs:
            if output.outcome is Outcome.OK and output.answer is not None:
                key = application, output.model
                mean = self._means.get(key)
                if mean is None:
                    mean = self._means[key] = _Mean()
                mean.add(output.answer)

    def fill(self, application: str, outputs: Mapping[int, ModelOutput]) -> dict[int, ModelOutput]:
        """Return the outputs with what stands in for each missing one in its place; their outcomes stay."""
        return {arm: self._filled(application, output) for arm, output in outputs.items()}

    def _filled(self, application: str, output: ModelOutput) -> ModelOutput:
        mean = self._means.get((application, output.model))
        return output._replace(answer=mean.value) if mean is not None and output.outcome in _NOT_IN_TIME else output
