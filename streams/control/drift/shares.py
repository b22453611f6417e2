"""How many of an application's columns are inputs, answers or of models: each has some that the others cannot take.

What comes first would else take all: answers of a few models with a number for each class leave no room for inputs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.usual.columns import DriftColumn

MOST_COLUMNS: Final = 48
INPUTS, ANSWERS, MODELS = "inputs", "answers", "models"
# Whoever comes first takes the others.
KEPT_FREE: Final = {INPUTS: 16, ANSWERS: 8, MODELS: 8}


class ColumnShares:
    """Counts the columns that are followed.

    Args:
        columns: that are followed already.
    """

    __slots__ = ("_taken",)

    def __init__(self, columns: Iterable[DriftColumn] = ()) -> None:
        self._taken = Counter([_share(column) for column in columns])

    def take(self, column: DriftColumn) -> bool:
        """Count one more, if there is room for it."""
        share = _share(column)
        free = sum([max(0, kept - self._taken[other]) for other, kept in KEPT_FREE.items() if other != share])
        has_room = self._taken.total() + free < MOST_COLUMNS
        self._taken[share] += has_room
        return has_room


def _share(column: DriftColumn) -> str:
    if column.model:
        return MODELS
    return ANSWERS if column.name == "confidence" or column.name.startswith("answer") else INPUTS
