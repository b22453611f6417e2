"""What a model has answered, as columns write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import NamedTensors, Tensor

WHOLE, DOUBLE, TEXT = 0, 1, 2
KINDS: Final[tuple[type[int | float | str], ...]] = (int, float, str)
_LONGEST: Final = 4_096  # bytes of an answer that is a text
_LONG_MAX = 2**63 - 1


class AnswerColumn(NamedTuple):
    """A model's answers as they are written."""

    kind: int
    answers: bytes | list[bytes]


def said(
    answers: tuple[str, ...] | Tensor | NamedTensors | NDArray[Any], outcomes: Sequence[Outcome]
) -> AnswerColumn | None:
    """Return answers as they are written; None: they are not one finite number or text a row."""
    if outcomes.count(Outcome.OK) < len(outcomes):
        return None
    return _texts(answers) if isinstance(answers, tuple) else _numbers(answers)


def _texts(answers: tuple[str, ...]) -> AnswerColumn | None:
    try:
        texts = [text.encode() for text in answers]
    except UnicodeEncodeError:
        return None
    return AnswerColumn(TEXT, texts) if max(map(len, texts), default=0) <= _LONGEST else None


def _numbers(answers: Tensor | NamedTensors | NDArray[Any]) -> AnswerColumn | None:
    column: NDArray[Any] = answers if isinstance(answers, np.ndarray) else answers.numpy()
    kind = column.dtype.kind
    if column.ndim != 1 or kind not in "iuf":
        return None
    if kind == "f":
        return AnswerColumn(DOUBLE, column.astype("<f8", copy=False).tobytes()) if np.isfinite(column).all() else None
    if column.dtype == np.uint64 and (column > _LONG_MAX).any():
        return None
    return AnswerColumn(WHOLE, column.astype("<i8", copy=False).tobytes())
