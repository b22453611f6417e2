"""The work of a floor on a poll: Skysail's own codec, and a linear model as arrays.

It writes the same bytes as Skysail does, and leaves out all else that Skysail does for them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from schemas.codec import Codec
from schemas.records import ModelOutput, Outcome, Prediction, Query, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Predict = Callable[[NDArray[Any]], NDArray[Any]]

VERSION = "1"
_SLO_US = 100_000


class CodecWork:
    """Answers polls.

    Args:
        model: joblib file of a fitted classifier of scikit-learn; its name without the ending is what the model is
            called. A linear one with more than two classes runs as arrays, any other as it is.
    """

    def __init__(self, model: str) -> None:
        estimator: Any = joblib.load(model)
        self._predict: Predict = _arrays(estimator) if hasattr(estimator, "coef_") else estimator.predict
        self._outputs: dict[int, tuple[ModelOutput, ...]] = {}
        self._name = Path(model).stem
        self._codec = Codec()

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return a prediction for each query; all have rows of one type and length."""
        decode, encode = self._codec.decode, self._codec.encode
        queries = [decode(Query, value) for value in values]
        labels = self._predict(_rows(queries)).tolist()
        now_us = time.time_ns() // 1_000
        return [
            encode(
                Prediction(
                    query.query_id,
                    query.application,
                    query.context,
                    None,
                    Status.COMPLETE,
                    None,
                    label,
                    1.0,
                    self._outputs.get(label) or self._output(label),
                    query.sent_us,
                    now_us,
                    query.sent_us + _SLO_US,
                    now_us,
                )
            )
            for query, label in zip(queries, labels, strict=True)
        ]

    def _output(self, label: int) -> tuple[ModelOutput, ...]:
        return self._outputs.setdefault(label, (ModelOutput(self._name, VERSION, Outcome.OK, label),))


def _rows(queries: Sequence[Query]) -> NDArray[Any]:
    inputs: list[Any] = [query.input for query in queries]
    return np.frombuffer(b"".join([row.data for row in inputs]), inputs[0].dtype).reshape(len(queries), -1)


def _arrays(estimator: Any) -> Predict:
    weights, intercept = np.ascontiguousarray(estimator.coef_.T), np.asarray(estimator.intercept_)
    labels = np.asarray(estimator.classes_)

    def predict(rows: NDArray[Any]) -> NDArray[Any]:
        best: NDArray[Any] = labels.take((rows @ weights + intercept).argmax(axis=1))
        return best

    return predict
