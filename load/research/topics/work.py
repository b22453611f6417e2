"""What every peer does with the records of a poll: read JSON, predict all rows at once, write all and the score."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import joblib
import orjson

from load.research.topics.orders import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.models.training import Estimator


@dataclass(frozen=True, slots=True)
class TopicTask:
    """The JSON argument of a peer's process: score `source` into `sink` until terminated."""

    bootstrap: str
    source: str
    sink: str
    model: str  # joblib file

    @property
    def group(self) -> str:
        """The consumer group, under the prefix of the topics."""
        return f"{self.sink}.peer"

    @classmethod
    def from_arguments(cls) -> TopicTask:
        """Read the task from the command line, and leave none of it to a system that parses the line too."""
        return cls(**json.loads(sys.argv.pop(1)))

    def arguments(self) -> str:
        """Return the command line's argument."""
        return json.dumps(asdict(self))


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
