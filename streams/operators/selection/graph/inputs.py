"""What a row of a graph is given: the query, parts of the answers on the way to it, and answers of stages beside.

A row that needs the answer of a stage beside its own way has it from the row that belongs to the same items:

    q7/detect.0/cars.3   needs `colour`, which comes after detect, too:   q7/detect.0/colour.3
                         needs `scene`, which is asked about the query:   q7/scene.0

So the answer is one for each item that both ways share, and is given to all rows behind that item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.conditions import parse
from policies.graph import QUERY, path, sources
from policies.items import InputError, cropped, joined, part_of
from streams.operators.selection.graph.walk import row_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.items import Item
    from schemas.records import Input
    from streams.operators.selection.graph.walk import StageRow, Walk


def awaited(walk: Walk, row: StageRow) -> str:
    """Return the id of the first row whose answer this row still needs from another branch; empty = none.

    Raises:
        InputError: one has several answers where one is needed.
    """
    found = []
    for name in walk.graph.beside[row.stage.name]:
        its_id, its, is_left_out = _beside(walk, row, name)
        if its is None or is_left_out or not its.is_good:
            return its_id
        found.append(its)
    row.beside = tuple(found)
    return ""


def meant(walk: Walk) -> list[StageRow]:
    """Return the rows in their order, without those that a condition leaves out of what they need."""
    known: dict[str, bool] = {}
    return [row for row in walk.ordered() if not _never(walk, row, known)]


def _never(walk: Walk, row: StageRow, known: dict[str, bool]) -> bool:
    """Tell whether a row is not to be asked: a condition leaves out what it needs, or there is nothing of it.

    What is `known` of other rows is not worked out again: each may be needed by all that come after it.
    """
    if row.at_us or row.left_out:
        return False
    found = known.get(row.row_id)
    if found is None:
        beside = walk.graph.beside[row.stage.name]
        found = known[row.row_id] = any(_is_left_out(walk, row, name, known) for name in beside)
    return found


def _is_left_out(walk: Walk, row: StageRow, name: str, known: dict[str, bool]) -> bool:
    try:
        _, its, is_left_out = _beside(walk, row, name)
    except InputError:
        return False
    return is_left_out or (its is not None and _never(walk, its, known))


def given(row: StageRow, query: Input, size: Sequence[int]) -> Input:
    """Return what a row's model is given.

    Args:
        row: whose answers have all come.
        query: the query's input.
        size: height and width of the images that the model takes; empty = any.

    Raises:
        InputError: there is no such thing.
    """
    return joined([_part(row, name, field, query, size) for name, field in sources(row.stage)])


def _part(row: StageRow, name: str, field: str, query: Input, size: Sequence[int]) -> Input:
    if name == QUERY:
        return cropped(query, row.part, row.stage.crop, size) if row.stage.crop and row.part is not None else query
    # The item of a stage on the way lies in the row after it.
    on_way = (its.part for its in row.back() if its.before is not None and its.before.stage.name == name)
    beside = (_only(its)[0] for its in row.beside if its.stage.name == name)
    part = next(on_way, None) or next(beside)
    return part_of(part, field)


def _beside(walk: Walk, row: StageRow, name: str) -> tuple[str, StageRow | None, bool]:
    """Return the row of another stage that belongs to the same items: its id, itself, and whether it is left out.

    Where a row before it has no answer, it is that one.
    """
    way = [*row.back()][::-1]
    stages = path(walk.graph.stages[name], walk.graph.stages)
    shared = next(n for n, its in enumerate(stages) if n == len(way) or its != way[n].stage.name)
    last, item = (way[shared - 1] if shared else None), way[shared].item
    part = way[shared].part
    for stage in stages[shared:]:
        its_id = row_id(walk.root_id if last is None else last.row_id, stage, item)
        its = walk.rows.get(its_id)
        if its is None:
            is_left_out = part is not None and not parse(walk.graph.stages[stage].where).holds(part.fields)
            return its_id, None, is_left_out
        if not its.is_good or stage == name:
            return its_id, its, its.is_good and not _only(its)
        last, item = its, 0
        items = _only(its)
        if not items:
            return its_id, None, True
        part = items[0]
    raise AssertionError("a stage is not before itself")


def _only(row: StageRow) -> list[Item]:
    """Return the item of a row's answer, as the only one of a list; or none, if it is an empty list.

    Raises:
        InputError: there are several.
    """
    items, _ = row.items()
    if len(items) > 1:
        name = row.stage.name
        raise InputError(f"{name} has {len(items)} items, and one is needed; to ask about each, write `after: {name}`")
    return items
