"""Wire formats of queries and answers: Skysail's Avro, and JSON V2 for MLServer, which reads nothing else.

The judge sends queries by templates, and peeks at answers. Each format says how, and both are tested to be the same as
its codec.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from load.research.harness.templates import template
from schemas.codec import Codec
from schemas.framing import SINGLE_OBJECT_BYTES, peek_id
from schemas.records import Outcome, Prediction, Query, Status, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.research.harness.templates import Fill

_DATATYPES = {"float32": "FP32", "uint8": "UINT8"}
_MOST_KNOWN = 1_000  # ways to begin a prediction; one is new with each state of its policy
_SHORT = 64  # from this size on it takes two bytes
_ID = re.compile(rb'"id": ?"([0-9A-Za-z_-]+)"')

Peeked: TypeAlias = tuple[str, bool]  # of an answer: to which query, whether it is a default


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

    def template(self, query: Query) -> Fill:
        """Return what makes the record value of a query that differs in its id and its time alone."""
        ...

    def answer(self, value: bytes) -> Answer:
        """Return what an answer's record value says."""
        ...

    def peek(self, value: bytes) -> Peeked:
        """Return as much of an answer as a judge of latencies needs; what cannot be peeked is decoded."""
        ...


class Avro:
    """Skysail's records, as Avro single objects."""

    headers: Sequence[tuple[str, bytes]] = ()

    def __init__(self) -> None:
        self._codec = Codec()
        self._head = b""  # of the latest prediction decoded: framing and the size of its id
        self._id_end = self._end = 0  # of its id, and of its status
        self._known: dict[bytes, bool] = {}  # what stands between them, the status included: is it a default's?

    def query(self, query: Query) -> bytes:
        """Return a `Query`."""
        return self._codec.encode(query)

    def template(self, query: Query) -> Fill:
        """Return a template of a `Query`, whose time is when it is sent."""
        return template(lambda query_id, time_us: self.query(query._replace(query_id=query_id, sent_us=time_us)))

    def answer(self, value: bytes) -> Answer:
        """Read a `Prediction`."""
        prediction = self._codec.decode(Prediction, value)
        if prediction.status is Status.DEFAULT:
            return Answer(prediction.query_id, ())
        answers = tuple((output.model, output.answer) for output in prediction.outputs if output.outcome is Outcome.OK)
        return Answer(prediction.query_id, answers)

    def peek(self, value: bytes) -> Peeked:
        """Read id and status of a `Prediction`: 0.4 us, where decoding takes 1.

        Avro has no places, only an order. But all queries that one state of a policy decides have equal bytes from
        behind the id to the status, and what was read once in bytes is known wherever they are the same.
        """
        if value.startswith(self._head):
            is_default = self._known.get(value[self._id_end : self._end])
            if is_default is not None:
                return value[len(self._head) : self._id_end].decode(), is_default
        return self._decoded(value)

    def _decoded(self, value: bytes) -> Peeked:
        """Decode a prediction, and remember how it begins if its id is short and it is written as by the codec."""
        prediction = self._codec.decode(Prediction, value)
        query_id, is_default = prediction.query_id, prediction.status is Status.DEFAULT
        size = len(query_id.encode())
        other = prediction._replace(status=Status.COMPLETE if is_default else Status.DEFAULT)
        if size < _SHORT and self._codec.encode(prediction) == value:
            head = value[: SINGLE_OBJECT_BYTES + 1]
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._head, self._id_end = head, len(head) + size
            self._end = 1 + _first_difference(value, self._codec.encode(other))
            self._known[value[self._id_end : self._end]] = is_default
        return query_id, is_default


class Echo(Avro):
    """No system in between: what arrives is the query."""

    def answer(self, value: bytes) -> Answer:
        """Read a `Query`; nobody has said anything about it."""
        return Answer(self._codec.decode(Query, value).query_id, (("", None),))

    def peek(self, value: bytes) -> Peeked:
        """Read a query's first text."""
        return peek_id(value), False


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

    def template(self, query: Query) -> Fill:
        """Return a template of a request, which has no time in it."""
        return template(lambda query_id, _: self.query(query._replace(query_id=query_id)))

    def answer(self, value: bytes) -> Answer:
        """Read an inference response of one row."""
        response = json.loads(value)
        return Answer(response["id"], ((self._model, response["outputs"][0]["data"][0]),))

    def peek(self, value: bytes) -> Peeked:
        """Read a response's id, if it is the only one in it and a plain text; a response is no default."""
        found = _ID.findall(value)
        if len(found) == 1 == value.count(b'"id"') and b'"outputs"' in value:
            return found[0].decode(), False
        return self.answer(value).query_id, False


def _first_difference(one: bytes, other: bytes) -> int:
    """Return where two texts of one length differ first."""
    differing = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return len(one) - (differing.bit_length() + 7) // 8
