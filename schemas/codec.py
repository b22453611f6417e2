"""The codec: records to bytes and back. Bytes that are not exactly a record of ours are refused.

Any byte string either decodes or raises `DecodeError`. The bytes must carry an allow-listed schema (the current one or
a released older one) and be no larger than `max_bytes`. They must hold one whole record and nothing after it, with
known symbols, finite numbers and tensors as long as their shapes say. The model's signature judges a tensor's values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from schemas import framing
from schemas.compiling import reader, reader_of_one, values, writer
from schemas.definitions import CURRENT, RECORDS, readable
from schemas.encoders import FAILURES, explain
from schemas.errors import DecodeError, OversizedError, SchemaError
from schemas.records import Measurements, ModelPredictions, ModelQueries, Observation, Observations
from schemas.sizes import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.avsc import Schema
    from schemas.records import NamedTensors, Query, Tensor

R = TypeVar("R")
_Read: TypeAlias = "Callable[[bytes, int], tuple[object, int]]"
_Write: TypeAlias = "Callable[[object, bytes], bytes]"
_Batch: TypeAlias = ModelQueries | ModelPredictions
_COLUMNS: Final = (ModelQueries, ModelPredictions)

# Bound of a query's texts beside its input (id, application, context), in bytes of UTF-8: all of them travel with the
# answer, with the observation and to every model.
MAX_TEXT: Final = 4_096


def over_text(query: Query) -> str:
    """Return what is wrong where a query's texts beside its input are longer than may travel; empty if they are not."""
    texts = (query.query_id, query.application, query.context, query.version, query.reply_token, query.episode)
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if text) <= MAX_TEXT:
        return ""
    return f"Query: id, application, context, version, token and episode have more than {MAX_TEXT} bytes"


class Codec:
    """Encodes and decodes every record. Immutable; one serves a whole process.

    Attributes:
        max_bytes: Largest value.

    Args:
        ids: Registry id of each record's current schema, by record name. Given, records are written with Confluent
            framing; otherwise as Avro single objects. Both are read, either way.
        accepted: Fingerprint (8 bytes) behind each further registry id that may be read, e.g. those under which older
            versions are registered. An id with a fingerprint that is not on the allow-list is refused.
        max_bytes: Largest value, framing included; larger ones are refused in both directions.

    Raises:
        SchemaError: If `ids` lacks a record, or `accepted` names a schema that was never released.
    """

    def __init__(
        self,
        ids: Mapping[str, int] | None = None,
        accepted: Mapping[int, bytes] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        ids, accepted = ids or {}, accepted or {}
        self.max_bytes = max_bytes
        self._writers = {record: (_writer(record), _head(record, ids)) for record in RECORDS}
        self._readers = {record: _readers(record, ids, accepted) for record in RECORDS}
        self._decode = values(self._readers, max_bytes, self._explained)
        allowed = {schema.fingerprint for record in RECORDS for schema in readable(record.__name__)}
        foreign = sorted(schema_id for schema_id, fingerprint in accepted.items() if fingerprint not in allowed)
        if foreign:
            raise SchemaError(f"registry ids {foreign} stand for schemas that were never released")

    def encode(self, record: object) -> bytes:
        """Return a record's bytes, framed; raises SchemaError, naming the field, where a value does not fit."""
        try:
            write, head = self._writers[record.__class__]
        except KeyError:
            raise SchemaError(f"{type(record).__name__} is not a record that travels by itself") from None
        try:
            value = write(record, head)
        except FAILURES as error:
            raise explain(record, CURRENT[type(record).__name__].record, error) from error
        if len(value) > self.max_bytes:
            raise OversizedError(f"{type(record).__name__}: {self._over(value)}")
        return value

    def decode(self, record: type[R], value: bytes | None) -> R:
        """Return the record in `value`; raises DecodeError, and nothing else, where there is none."""
        return self._decode(record, value)

    def _over(self, value: bytes) -> str:
        return f"{len(value)} bytes, over {self.max_bytes} (max_input_kib: {self.max_bytes // 1024})"

    def _explained(self, record: type[R], value: bytes | None) -> R:
        """Decode step by step, so that an error can say which one fails."""
        if not value:
            raise DecodeError("empty", f"{record.__name__}: no value")
        if len(value) > self.max_bytes:
            raise DecodeError("oversized", f"{record.__name__}: {self._over(value)}")
        start = framing.CONFLUENT_BYTES if value[0] == 0 else framing.SINGLE_OBJECT_BYTES
        read = self._readers[record].get(value[:start])
        if read is None:
            raise DecodeError("unknown_schema", f"{record.__name__}: {framing.describe(value)} is not one of its own")
        found, end = read(value, start)
        if end < len(value):
            raise DecodeError("trailing", f"{record.__name__}: ends at byte {end}, but {len(value)} bytes came")
        if end > len(value):
            raise DecodeError("truncated", f"{record.__name__}: needs {end} bytes, but {len(value)} came")
        return cast("R", found)


def _head(record: type, ids: Mapping[str, int]) -> bytes:
    """Return the framing to write before a record: the registry's where there is one."""
    if not ids:
        return framing.single_object(CURRENT[record.__name__].fingerprint)
    if record.__name__ not in ids:
        raise SchemaError(f"ids has no {record.__name__}; it must name every record: {sorted(CURRENT)}")
    return framing.confluent(ids[record.__name__])


def _readers(
    record: type,
    ids: Mapping[str, int],
    accepted: Mapping[int, bytes],
    make: Callable[[Schema, type], _Read] = reader,
) -> dict[bytes, _Read]:
    """Return the allow-list of one record: a reader behind every framing that may stand before it.

    Observations also read a single observation, and see none in measurements, which stand in the same topic.
    """
    readers: dict[bytes, _Read] = {}
    if record is Observations:
        readers |= _readers(Observation, ids, accepted, lambda schema, _: reader_of_one(schema, Observations))
        readers |= _readers(Measurements, ids, accepted, _without_observations)
    for schema in readable(record.__name__):
        read = make(schema, record)
        if record in _COLUMNS:
            read = _checked(read, record.__name__)
        readers[framing.single_object(schema.fingerprint)] = read
        behind = [schema_id for schema_id, fingerprint in accepted.items() if fingerprint == schema.fingerprint]
        if schema == CURRENT[record.__name__] and record.__name__ in ids:
            behind.append(ids[record.__name__])
        readers.update((framing.confluent(schema_id), read) for schema_id in behind)
    return readers


def _without_observations(schema: Schema, record: type) -> _Read:
    """Return a reader of records that hold no observation: what they hold is checked all the same."""
    read = reader(schema, record)

    def read_none(buffer: bytes, start: int) -> tuple[object, int]:
        return Observations(()), read(buffer, start)[1]

    return read_none


def _writer(record: type) -> _Write:
    """Return a record's writer, with the check that a schema cannot express."""
    write = writer(CURRENT[record.__name__].record)
    if record not in _COLUMNS:
        return write

    def write_checked(batch: object, head: bytes) -> bytes:
        fault = _uneven(cast("_Batch", batch))
        if fault:
            raise ValueError(fault)
        return write(batch, head)

    return write_checked


def _checked(read: _Read, name: str) -> _Read:
    """Wrap the reader of a batch with the check that its columns are equally long."""

    def read_checked(buffer: bytes, start: int) -> tuple[object, int]:
        batch, end = read(buffer, start)
        fault = _uneven(cast("_Batch", batch)) if end == len(buffer) else None
        if fault:
            raise DecodeError("invalid", f"{name}: {fault}")
        return batch, end

    return read_checked


def _uneven(batch: _Batch) -> str | None:
    """Say which column of a batch has another number of rows than `query_ids`."""
    rows = len(batch.query_ids)
    if isinstance(batch, ModelQueries):
        lengths = {"due_us": len(batch.due_us), "inputs": _rows(batch.inputs)}
        if batch.priorities:
            lengths["priorities"] = len(batch.priorities)
    else:
        lengths = {
            "outcomes": len(batch.outcomes),
            "waited_us": len(batch.waited_us),
            "answers": _rows(batch.answers),
            "scores": rows if batch.scores is None else _rows(batch.scores),
            "messages": len(batch.messages) or rows,
            "steps": len(batch.steps) or rows,
        }
    uneven = ", ".join(f"{name} has {length}" for name, length in lengths.items() if length != rows)
    return f"{rows} query_ids, but {uneven} rows" if uneven else None


def _rows(column: Tensor | NamedTensors | tuple[str | bytes, ...]) -> int:
    """Return the number of rows of a column; a tensor's are its first dimension."""
    if isinstance(column, tuple):
        return len(column)
    return column.shape[0] if column.shape else -1
