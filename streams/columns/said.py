"""What a model has answered, as columns write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas.records import Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WHOLE, DOUBLE, TEXT = 0, 1, 2
KINDS: Final[tuple[type[int | float | str], ...]] = (int, float, str)
_LONGEST: Final = 4_096  # bytes of an answer that is a text


class Said(NamedTuple):
    """A model's answers as they are written."""

    kind: int
    answers: bytes | list[bytes]


def said(answers: tuple[str, ...] | Tensor | NDArray[Any], outcomes: Sequence[Outcome]) -> Said | None:
    """Return answers as they are written; None: they are not one number or text a row."""
    if outcomes.count(Outcome.OK) < len(outcomes):
        return None
    if isinstance(answers, tuple):
        try:
            texts = [text.encode() for text in answers]
        except UnicodeEncodeError:
            return None
        return Said(TEXT, texts) if max(map(len, texts), default=0) <= _LONGEST else None
    column = answers.numpy() if isinstance(answers, Tensor) else answers
    if column.ndim != 1 or column.dtype.kind not in "iuf":
        return None
    is_whole = column.dtype.kind != "f"
    return Said(WHOLE if is_whole else DOUBLE, column.astype("<i8" if is_whole else "<f8", copy=False).tobytes())
