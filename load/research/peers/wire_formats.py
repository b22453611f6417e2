"""Wire formats of queries and answers: Skysail's Avro, and JSON V2 for MLServer, which reads nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Protocol

from schemas.codec import Codec
from schemas.records import Outcome, Prediction, Query, Status, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATATYPES = {"float32": "FP32", "uint8": "UINT8"}


class Answer(NamedTuple):
    """An answer: to which query, what each model said; nothing in `labels` = answered by a default."""

    query_id: str
    labels: tuple[tuple[str, object], ...]


class WireFormat(Protocol):
    """Queries to bytes, bytes to answers."""

    headers: Sequence[tuple[str, bytes]]

    def query(self, query: Query) -> bytes:
        """Return a query's record value."""
        ...

    def answer(self, value: bytes) -> Answer:
        """Return what an answer's record value says."""
        ...


class Avro:
    """Skysail's records, as Avro single objects."""

    headers: Sequence[tuple[str, bytes]] = ()

    def __init__(self) -> None:
        self._codec = Codec()

    def query(self, query: Query) -> bytes:
        """Return a `Query`."""
        return self._codec.encode(query)

    def answer(self, value: bytes) -> Answer:
        """Read a `Prediction`."""
        prediction = self._codec.decode(Prediction, value)
        if prediction.status is Status.DEFAULT:
            return Answer(prediction.query_id, ())
        answers = tuple((output.model, output.answer) for output in prediction.outputs if output.outcome is Outcome.OK)
        return Answer(prediction.query_id, answers)


class Echo(Avro):
    """No system in between: what arrives is the query."""

    def answer(self, value: bytes) -> Answer:
        """Read a `Query`; nobody has said anything about it."""
        return Answer(self._codec.decode(Query, value).query_id, (("", None),))


class V2:
    """The open inference protocol, as MLServer's Kafka server speaks it; larger by a factor of four."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.headers: Sequence[tuple[str, bytes]] = (("mlserver-model", model.encode()),)

    def query(self, query: Query) -> bytes:
        """Return an inference request of one row."""
        if not isinstance(query.input, Tensor):
            raise TypeError(f"query {query.query_id} holds no tensor")
        row = query.input.numpy()
        tensor = {"name": "rows", "shape": [1, row.size], "datatype": _DATATYPES[row.dtype.name], "data": row.tolist()}
        return json.dumps({"id": query.query_id, "inputs": [tensor]}).encode()

    def answer(self, value: bytes) -> Answer:
        """Read an inference response of one row."""
        response = json.loads(value)
        return Answer(response["id"], ((self._model, response["outputs"][0]["data"][0]),))
