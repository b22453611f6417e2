"""The work of a hand loop on a poll with public libraries: fastavro decodes and encodes, scikit-learn predicts."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import fastavro
import joblib
import numpy as np

from load.baseline.codec_work import CodecWork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.baseline.job import Job
    from load.models.training import Estimator

_HEADER = 10  # Avro single-object encoding: marker and fingerprint
_QUERY = fastavro.parse_schema(json.loads((files("schemas") / "Query.avsc").read_text()))
_ANSWER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Answer",
        "fields": [
            {"name": "query_id", "type": "string"},
            {"name": "label", "type": "long"},
            {"name": "version", "type": "string"},
        ],
    }
)


class Answers(Protocol):
    """Answers the values of a poll."""

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return one value for each value."""
        ...


def work_of(job: Job) -> Answers:
    """Return what answers a job's polls."""
    return CodecWork(job.model) if job.codec else Work(job.model)


class Work:
    """Answers polls.

    Args:
        model: joblib file of a fitted estimator; empty = answers are the queries' own bytes.
    """

    def __init__(self, model: str) -> None:
        self._model: Estimator | None = joblib.load(model) if model else None

    def answer(self, values: Sequence[bytes]) -> list[bytes]:
        """Return one value for each value."""
        if self._model is None:
            return list(values)
        queries = [self._decode(value) for value in values]
        rows = np.stack([self._row(query["input"]) for query in queries])
        labels = self._model.predict(rows)
        return [self._encode(query["query_id"], int(label)) for query, label in zip(queries, labels, strict=True)]

    @staticmethod
    def _decode(value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value[_HEADER:]), _QUERY, None)

    @staticmethod
    def _row(tensor: Any) -> Any:
        return np.frombuffer(tensor["data"], dtype=tensor["dtype"])

    @staticmethod
    def _encode(query_id: str, label: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, _ANSWER, {"query_id": query_id, "label": label, "version": "1"})
        return out.getvalue()
