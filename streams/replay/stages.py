"""What the stages of a graph were asked, as it was recorded: under which ids, and when each output came."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from policies.graph import MOST_STAGES
from schemas.records import ModelOutput, Outcome
from streams.operators.selection.graph.walk import row_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Prediction, StageOutput

_Row: TypeAlias = "tuple[str, ModelOutput, str]"
_OK, _INVALID = Outcome.OK, Outcome.INVALID


def told(prediction: Prediction) -> Iterator[tuple[int, list[_Row]]]:
    """Yield the outputs of stages in the order in which they came: when, and id, output and message of each.

    What was not asked because there was no time comes at once: whether there is time follows from nothing recorded.
    Messages are recorded by query: the first row that a worker could not answer brings all of them, else the first that
    was not asked.
    """
    ids, depths = _ids(prediction.query_id, prediction.stages), _depths(prediction.stages)
    order = sorted(range(len(ids)), key=lambda place: (_came_us(prediction.stages[place]), depths[place]))
    without = [place for place, row in enumerate(prediction.stages) if _is_told(row) and row.outcome is not _OK]
    failed = next((place for place in without if prediction.stages[place].version), without[0] if without else -1)
    for place in order:
        row = prediction.stages[place]
        if _is_told(row):
            message = prediction.message if place == failed else ""
            yield _came_us(row), [(ids[place], _output(row), message)]


def outputs_with_ids(prediction: Prediction, renamed: str) -> Iterator[tuple[tuple[str, ...], ModelOutput]]:
    """Yield the outputs that workers gave to stages, with the ids under which each row may have been asked.

    Args:
        prediction: with them.
        renamed: what selection puts behind an id that another row has.
    """
    first, second = (_ids(base, prediction.stages) for base in (prediction.query_id, prediction.query_id + renamed))
    for row, one, other in zip(prediction.stages, first, second, strict=True):
        if row.version:  # a worker has answered
            yield (one, one + renamed, other, other + renamed), _output(row)


def _is_told(row: StageOutput) -> bool:
    """Tell whether an output came from elsewhere: what selection itself finds wrong, it finds again."""
    return (
        row.outcome is not Outcome.MISSING and not row.left_out and (row.version != "" or row.outcome is not _INVALID)
    )


def _came_us(row: StageOutput) -> int:
    return row.at_us + row.took_us


def _output(row: StageOutput) -> ModelOutput:
    return ModelOutput(row.model, row.version, row.outcome, row.answer, row.scores)


def _ids(base: str, rows: Sequence[StageOutput]) -> list[str]:
    found: list[str] = []
    for place, row in enumerate(rows):
        found.append(row_id(found[row.before] if 0 <= row.before < place else base, row.stage, row.item))
    return found


def _depths(rows: Sequence[StageOutput]) -> list[int]:
    """Return how many answers each row had to wait for, one after the other; in a circle, which is none, the most."""
    needed = [[each for each in (row.before, *row.beside) if 0 <= each < len(rows)] for row in rows]
    found = [0] * len(rows)
    for _ in range(MOST_STAGES):
        before, found = found, [max((found[each] + 1 for each in its), default=0) for its in needed]
        if found == before:
            break
    return found
