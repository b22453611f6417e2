"""From columns to what models are asked about, many rows at once.

numbers ─▶ one array of the model's own type          names of a data frame, texts, expressions ─▶ row by row
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan, prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import orjson

from deploy.errors import UsageError
from schemas.errors import SchemaError
from schemas.inputs import as_input, row_text
from schemas.records import Query, Tensor
from streams.mapping.errors import MappingError
from streams.mapping.fields import FieldSource
from streams.mapping.formats import TopicForm
from streams.mapping.incoming import query_of
from streams.mapping.spec import Incoming
from streams.operators.contract import Record
from workers.inputs.columns import Stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deploy.scoring.blocks import RowBlock
    from schemas.records import Input
    from workers.manifest import Signature

_TEXTS: Final = ("string", "category")
_WITH_COLUMNS: Final = ("tensor", "table")
_NOTHING: Final = Tensor("float32", (0,), b"")  # stands for the input of a row that cannot be read
_NO_QUERY: Final = Query("", "", _NOTHING)
_FORM: Final = TopicForm("")


class AskedRows(NamedTuple):
    """Rows as queries: column i of each belongs to row i.

    Attributes:
        ids: of the queries.
        inputs: that models are asked about.
        contexts: None = no row has one.
        features: None = no row has some.
        faults: why a row cannot be asked, by its place.
    """

    ids: Sequence[str]
    inputs: Sequence[Input]
    contexts: Sequence[str | None] | None
    features: Sequence[tuple[float, ...]] | None
    faults: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RowReader:
    """What of a row is what.

    Attributes:
        name: of the file or topic: rows without an id are called by it and their place.
        signature: of the model that is asked, by which columns are found where nothing names them.
        incoming: what names them.
        is_found: whether its input says nothing yet, and columns are found by the signature.
    """

    name: str
    signature: Signature
    incoming: Incoming
    is_found: bool = False

    def settled(self, block: RowBlock) -> RowReader:
        """Return the same with the columns that the model takes, as the first block has them.

        Raises:
            UsageError: they cannot be told.
        """
        if not self.is_found:
            return self
        told = self.incoming
        others = [path for each in (told.id, told.key, told.features) if each is not None for path in each.paths]
        found = chosen(self.signature, block, others)
        return replace(self, incoming=replace(told, input=found), is_found=False)

    def called(self, name: str) -> RowReader:
        """Return the same for another file."""
        return self if name == self.name else replace(self, name=name)

    def read(self, block: RowBlock) -> AskedRows:
        """Return the rows of a block.

        Raises:
            UsageError: it has no such columns.
        """
        told = self.incoming
        faults: dict[int, str] = {**block.faults}
        if any(each is not None and each.column is None for each in (told.key, told.id)):
            return self._one_by_one(block)
        if told.features is not None or not _are_columns(told.input, block):
            return self._one_by_one(block)
        if told.input.columns and self.signature.kind not in _WITH_COLUMNS:
            return self._one_by_one(block)
        inputs = self._inputs(block, faults)
        ids = self._ids(block, faults)
        contexts = None if told.key is None else _texts(_cells(block, told.key.column), "key", faults)
        return AskedRows(ids, inputs, contexts, None, faults)

    def _ids(self, block: RowBlock, faults: dict[int, str]) -> Sequence[str]:
        told = self.incoming.id
        placed = self._placed(block)
        if told is None:
            return placed
        found = _texts(_cells(block, told.column), "id", faults)
        return [its if one is None else one for one, its in zip(found, placed, strict=True)]

    def _placed(self, block: RowBlock) -> Sequence[str]:
        """Return what rows are called that have no id of their own."""
        if block.ids is not None:
            return block.ids
        return [f"{self.name}:{place}" for place in range(block.first, block.first + block.rows)]

    def _inputs(self, block: RowBlock, faults: dict[int, str]) -> Sequence[Input]:
        told = self.incoming.input
        if self.signature.kind == "table":
            return _named_rows(self.signature, told, block)
        dtype = self.signature.dtype if str(self.signature.dtype).startswith("float") else "float64"
        if told.column is not None:
            flat = block.flat(told.column)
            if flat is not None and self.signature.kind == "tensor":
                return Stacked(str(dtype), flat.shape[1:], flat.astype(str(dtype)).tobytes(), block.rows)
            cells = block.listed(told.column)
            if self.signature.kind != "tensor" or _holds_rows(cells):
                return _whole(cells, faults)
        names = told.columns or (str(told.column),)
        return stacked([block.column(name) for name in names], names, str(dtype), block.rows, faults)

    def _one_by_one(self, block: RowBlock) -> AskedRows:
        """Read each row as the record of a topic is."""
        told = self.incoming
        ids = [*self._placed(block)]
        inputs: list[Input] = []
        contexts: list[str | None] = []
        features: list[tuple[float, ...]] = []
        faults: dict[int, str] = {**block.faults}
        for place, row in enumerate(block.as_rows()):
            record = Record(self.name, 0, block.first + place, 0, None, None)
            plain = {name: _typed(cell) for name, cell in row.items()} if block.is_text else row
            query = _NO_QUERY
            try:
                made = query_of(plain, self.name, record, told, 0).record
                query = made if isinstance(made, Query) else query
            except MappingError as error:
                faults.setdefault(place, str(error))
            if query is not _NO_QUERY and told.id is not None:
                ids[place] = query.query_id
            inputs.append(query.input)
            contexts.append(query.context)
            features.append(query.features)
        return AskedRows(ids, inputs, contexts, features, faults)


def told_by(
    asked: FieldSource | None, query_id: FieldSource | None, key: FieldSource | None, features: FieldSource | None
) -> Incoming:
    """Return what names columns."""
    return Incoming(_FORM, asked or FieldSource(), query_id, key, features)


def chosen(signature: Signature, block: RowBlock, others: Sequence[str] = ()) -> FieldSource:
    """Return the columns that a model takes, where nothing names them.

    Args:
        signature: of the model.
        block: the first one.
        others: columns that are something else: an id, a context.

    Raises:
        UsageError: they cannot be told.
    """
    if signature.kind == "table":
        missing = [name for name, _ in signature.read if name not in block]
        if missing:
            raise UsageError(f"there is no column {missing[0]}, which the model takes; {_there(block)}")
        return FieldSource(columns=tuple([name for name, _ in signature.read]))
    if signature.kind != "tensor":
        texts = [name for name in block.names if name not in others and isinstance(block.column(name), list)]
        if len(texts) == 1:
            return FieldSource(column=texts[0])
        raise UsageError(f"which column is the text that the model takes? Say --input NAME; {_there(block)}")
    width = prod(signature.shape)
    left = [name for name in block.names if name not in others]
    numbers = [name for name in left if _is_number(block.column(name), is_text=block.is_text)]
    if len(numbers) == width:
        return FieldSource(columns=tuple(numbers))
    lists = [name for name in left if _is_list(block.column(name), width)]
    if len(lists) == 1:
        return FieldSource(column=lists[0])
    raise UsageError(
        f"the model takes {signature}, and {len(numbers)} columns hold numbers: name them in its order, such as"
        f" --input {','.join(numbers[:3]) or 'a,b'}; {_there(block)}"
    )


def _there(block: RowBlock) -> str:
    return f"there are: {', '.join(block.names)[:400] or 'none'}"


def _is_number(cells: Any, *, is_text: bool) -> bool:
    if isinstance(cells, np.ndarray):
        return cells.dtype.kind in "biuf"
    first = next((cell for cell in cells if cell not in (None, "")), None)
    return isinstance(_typed(first) if is_text else first, int | float)


def _is_list(cells: Any, width: int) -> bool:
    first = next((cell for cell in cells if cell is not None), None) if isinstance(cells, list) else None
    return isinstance(first, list) and len(first) == width


def _holds_rows(cells: Sequence[Any]) -> bool:
    """Tell whether the cells of a column are lists, each a row of its own."""
    return isinstance(next((cell for cell in cells if cell is not None), None), list | bytes)


def _are_columns(told: FieldSource, block: RowBlock) -> bool:
    """Tell whether it names whole columns, and no path into one."""
    return told.expression is None and bool(told.paths) and all(path in block for path in told.paths)


def _cells(block: RowBlock, name: str | None) -> list[Any]:
    if name is None or name not in block:
        raise UsageError(f"there is no column {name}; {_there(block)}")
    return block.listed(name)


def _texts(cells: Sequence[Any], what: str, faults: dict[int, str]) -> list[str | None]:
    """Return texts, and whole numbers as texts; what else there is is a fault."""
    found: list[str | None] = [cell if type(cell) is str else None for cell in cells]
    for place, one in enumerate(found):
        if one is None and type(cells[place]) is int:
            found[place] = str(cells[place])
        elif not one:
            found[place] = None
            faults[place] = f"{what}: is a text or whole number, not {cells[place]!r:.80}"
    return found


def stacked(columns: Sequence[Any], names: Sequence[str], dtype: str, rows: int, faults: dict[int, str]) -> Stacked:
    """Return columns of numbers as rows, one behind the other; what is no number is a fault of its row."""
    found = np.empty((rows, len(columns)), dtype)
    with np.errstate(over="ignore"):  # infinite: the model's own check refuses the row
        for place, cells in enumerate(columns):
            try:
                found[:, place] = cells
            except (TypeError, ValueError, OverflowError):
                found[:, place] = _numbers(cells, names[place], faults)
    return Stacked(dtype, (len(columns),), found.tobytes(), rows)


def _numbers(cells: Sequence[Any], name: str, faults: dict[int, str]) -> NDArray[np.float64]:
    found = np.full(len(cells), nan)
    for place, cell in enumerate(cells):
        if cell is None or cell == "":
            continue
        try:
            found[place] = float(cell)
        except (TypeError, ValueError, OverflowError):
            faults[place] = f"input {name}: is a number, not {cell!r:.80}"
    return found


def _whole(cells: Sequence[Any], faults: dict[int, str]) -> Sequence[Input]:
    """Return each cell as an input of its own: a text, bytes, or a list of numbers."""
    found: list[Input] = []
    for place, cell in enumerate(cells):
        try:
            found.append(as_input(cell if not isinstance(cell, int | float) else [cell]))
        except (SchemaError, TypeError, ValueError) as error:
            faults[place] = f"input: {error}"[:400]
            found.append(_NOTHING)
    return found


def _named_rows(signature: Signature, told: FieldSource, block: RowBlock) -> Sequence[Input]:
    """Return rows of a data frame's columns, each as a JSON text."""
    names = told.named if told.columns else tuple([name for name, _ in signature.read])
    kinds = dict(signature.columns)
    places = told.columns or names
    columns = [
        [_typed_as(kinds.get(name, "any"), cell) for cell in block.listed(place)]
        if block.is_text
        else block.listed(place)
        for name, place in zip(names, places, strict=True)
    ]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [_written(row) for row in rows]


def _written(row: dict[str, Any]) -> str:
    try:
        return orjson.dumps(row).decode()
    except TypeError:  # a decimal, a whole number of more than 64 bits
        return row_text(row)


def _typed_as(kind: str, cell: Any) -> Any:
    """Return a cell as a column's kind has it; a text stays one where a text is taken."""
    if not isinstance(cell, str):
        return cell
    if kind in _TEXTS or kind.startswith("datetime64"):
        return cell or None
    return _typed(cell)


def _typed(cell: Any) -> Any:
    """Return a number for a text that is one, nothing for an empty one; all else as it is."""
    if not isinstance(cell, str):
        return cell
    if not cell:
        return None
    try:
        return int(cell) if cell.lstrip("-").isdecimal() and len(cell) < 19 else float(cell)
    except ValueError:
        return cell
