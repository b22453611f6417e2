"""A codec for kernels of one process: what they tell each other about models is handed on as it is, unencoded.

    kernel ─encode─▶ Carried, an empty value with the record ─▶ `Local` ─┬─ stays here ─▶ decode: the same record
                                                                         └─ leaves ─▶ written: encoded after all

Only what is sure to fit into a record is carried; all else is encoded, and refused, as anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from schemas.codec import Codec
from schemas.records import DTYPES, ModelPredictions, ModelQueries, Tensor

if TYPE_CHECKING:
    from streams.operators.contract import Emit

R = TypeVar("R")

# A quarter of what a record may hold, as kernels fill them.
_SMALL_BYTES = 131_072


class Carried(bytes):
    """Stands for the value of a record that has not left its process."""

    record: object


class LocalCodec(Codec):
    """Carries records about models, and has all others encoded and decoded.

    Args:
        codec: of the deployment.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, record: object) -> bytes:
        """Return a record's bytes, or what stands for them."""
        if _is_carried(record):
            value = Carried()
            value.record = record
            return value
        return self._codec.encode(record)

    def decode(self, record: type[R], value: bytes | None) -> R:
        """Return the record in `value`, or that it stands for."""
        if value.__class__ is Carried and value.record.__class__ is record:
            return value.record
        return self._codec.decode(record, value)

    def written(self, emit: Emit) -> Emit:
        """Return a record as it is written where it leaves the process."""
        if emit.value.__class__ is not Carried:
            return emit
        return emit._replace(value=self._codec.encode(emit.value.record))


def _is_carried(record: object) -> bool:
    """Tell whether a record may be carried: numbers fit for sure, texts and scores have to be tried."""
    if record.__class__ is ModelQueries:
        inputs = record.inputs
        return inputs.__class__ is Tensor and len(inputs.data) <= _SMALL_BYTES
    if record.__class__ is ModelPredictions:
        answers = record.answers
        return record.scores is None and answers.__class__ is Tensor and answers.dtype in DTYPES
    return False
