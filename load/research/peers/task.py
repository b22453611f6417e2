"""The task of every contender's process, and the work that all of them share. Only the loop around it differs.

All read the same queries and write the same predictions: Skysail with its codec, the others with fastavro.
"""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import fastavro
import joblib
import numpy as np

from schemas import framing
from schemas.definitions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from load.models.training import Estimator

    Query = Mapping[str, Any]  # as fastavro reads it

MODEL = "logistic"
VERSION = "1"
_SLO_US = 100_000
_QUERY, _PREDICTION = (fastavro.parse_schema(json.loads(CURRENT[name].text)) for name in ("Query", "Prediction"))
_HEAD = framing.single_object(CURRENT["Prediction"].fingerprint)


@dataclass(frozen=True, slots=True)
class Task:
    """The JSON argument of a contender's process: answer `source` on `sink` until terminated.

    Attributes:
        bootstrap: of the broker.
        source: full name of the topic with queries.
        sink: full name of the topic for predictions.
        model: joblib file of the estimator; its name without the ending is what the model is called.
        folder: for whatever the system wants to keep.
        setting: one entry of the contender's grid.
    """

    bootstrap: str
    source: str
    sink: str
    model: str
    folder: str
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The consumer group: under the prefix of the topics, so that it is deleted with them."""
        return f"{self.sink}.peer"

    @classmethod
    def from_arguments(cls) -> Task:
        """Read the task from the command line, and leave none of it to a system that parses the line too."""
        return cls(**json.loads(sys.argv.pop(1)))

    def arguments(self) -> str:
        """Return the command line's argument."""
        return json.dumps(asdict(self))


class Answering(Protocol):
    """What a contender does with the values of a poll."""

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return a record for each."""
        ...


class Work:
    """Decodes queries, predicts all of them at once, encodes predictions.

    Args:
        model: joblib file of a fitted estimator.
    """

    def __init__(self, model: str) -> None:
        self._model: Estimator = joblib.load(model)
        self._name = name_of(model)

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return a prediction for each query."""
        queries = self.decode(values)
        return self.encode(queries, self.predict(self.rows(queries)))

    def decode(self, values: Iterable[bytes]) -> list[Query]:
        """Return the queries."""
        return [_read(value) for value in values]

    def rows(self, queries: Iterable[Query]) -> NDArray[np.generic]:
        """Return the inputs (n, features)."""
        inputs = [query["input"] for query in queries]
        return np.stack([np.frombuffer(row["data"], row["dtype"]) for row in inputs])

    def predict(self, rows: NDArray[np.generic]) -> list[int]:
        """Return the labels of rows (n, features)."""
        labels: list[int] = self._model.predict(rows).tolist()
        return labels

    def encode(self, queries: Sequence[Query], labels: Sequence[int]) -> list[bytes]:
        """Return the predictions as they travel."""
        now_us = time.time_ns() // 1_000
        return [
            _written(_prediction(query, self._name, label, now_us))
            for query, label in zip(queries, labels, strict=True)
        ]


def name_of(model: str) -> str:
    """Return what a model in a joblib file is called."""
    return Path(model).stem


def _read(value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[framing.SINGLE_OBJECT_BYTES :]), _QUERY, None)


def _written(prediction: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(_HEAD)
    fastavro.schemaless_writer(out, _PREDICTION, prediction)
    return out.getvalue()


def _prediction(query: Query, model: str, label: int, now_us: int) -> Mapping[str, Any]:
    output = {"model": model, "version": VERSION, "outcome": "ok", "answer": label, "scores": None}
    return {
        "query_id": query["query_id"],
        "application": query["application"],
        "context": query["context"],
        "decision": None,
        "status": "complete",
        "reason": None,
        "answer": label,
        "confidence": 1.0,
        "outputs": [output],
        "sent_us": query["sent_us"],
        "received_us": now_us,
        "deadline_us": query["sent_us"] + _SLO_US,
        "answered_us": now_us,
    }
