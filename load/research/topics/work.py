"""What every peer does with the records of a poll: read JSON, predict all rows at once, write all and the score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import joblib
import orjson

from load.research.topics.orders import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.models.training import Estimator


class TopicWork:
    """Scores JSON records.

    Args:
        model: joblib file of a fitted estimator.
    """

    def __init__(self, model: str) -> None:
        self._model: Estimator = joblib.load(model)

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return a record with the score for each."""
        given = [orjson.loads(value) for value in values]
        scores = self._model.predict(rows(given)).tolist()
        return [orjson.dumps({**order, "score": score}) for order, score in zip(given, scores, strict=True)]
