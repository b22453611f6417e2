"""One query's way through its application's graph: what was asked, what came of it, item by item.

    StageRow   what one stage is asked about one item
    Walk       all of them, of one query

A row's id is the query's with the path to the row, such as `q7/detect.0/cars.3`. So a query that is read twice asks
under the same ids, and what is answered does not depend on the order in which outputs come. A row that needs answers of
other stages as well is there as soon as its item is, and is asked when they have come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from policies.graph import path
from policies.items import items_of
from schemas.records import ModelOutput, Outcome, StageOutput
from streams.operators.selection.pending import FollowUp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policies.graph import Graph
    from policies.items import Item
    from schemas.records import Stage
    from streams.operators.selection.pending import FollowsUp, Pending

ROOM: Final = 1_024  # rows of one query: each stage that follows a row has an equal part of the row's room

# The place of each stage on the path to a row among the application's, and the item there.
Key: TypeAlias = "tuple[tuple[int, int], ...]"


class StageRow(FollowUp):
    """What one stage is asked about one item.

    Attributes:
        stage: that asks.
        before: whose answer it is about; None = the query.
        beside: the other rows whose answers its model is given.
        item: which item of that answer.
        part: that item.
        at_us: when it could be asked: the query, or all answers that it needs, had been read; 0 = they have not come.
        until_us: by when it must have answered.
        room: rows that may follow it.
        key: orders the rows of a walk.
        model: that answers.
        row_id: under which it is asked.
        output: None = it has not come.
        took_us: from then until it was known what became of it.
        left_out: so many items, from this one on, are not asked about.
        message: for a person: why there is no answer.
        query: whose row it is, once it has been asked.
    """

    __slots__ = (
        "_items",
        "at_us",
        "before",
        "beside",
        "item",
        "key",
        "left_out",
        "message",
        "model",
        "output",
        "part",
        "query",
        "room",
        "row_id",
        "stage",
        "took_us",
        "until_us",
    )  # fmt: skip

    is_part = True

    def __init__(
        self, root_id: str, stage: Stage, model: str, before: StageRow | None, item: int, part: Item | None
    ) -> None:
        super().__init__()
        self.row_id: str = row_id(root_id if before is None else before.row_id, stage.name, item)
        self.stage = stage
        self.model = model
        self.before = before
        self.beside: tuple[StageRow, ...] = ()
        self.item = item
        self.part = part
        self.at_us = self.until_us = self.took_us = self.left_out = 0
        self.room = 0
        self.key: Key = ()
        self.output: ModelOutput | None = None
        self._items: tuple[list[Item], bool] | None = None
        self.message = ""
        self.query: Pending | None = None

    @property
    def is_good(self) -> bool:
        """Whether its answer is there."""
        return self.output is not None and self.output.outcome is Outcome.OK

    def items(self) -> tuple[list[Item], bool]:
        """Return the items of its answer, and whether it is a list of them: read once, though many rows need them."""
        if self._items is None:
            assert self.output is not None
            self._items = items_of(self.output.answer, self.output.scores)
        return self._items

    def fail(self, outcome: Outcome, message: str = "") -> None:
        """Note that it is not asked."""
        self.output, self.message = ModelOutput(self.model, "", outcome, None), message

    def back(self) -> Iterator[StageRow]:
        """Yield it and the rows before it."""
        row: StageRow | None = self
        while row is not None:
            yield row
            row = row.before

    def told(self, places: Mapping[Key, int]) -> StageOutput:
        """Return it as the prediction has it; `places`: the index of each row."""
        model, version, outcome, answer, scores = (self.output or ModelOutput(self.model, "", Outcome.MISSING, None))[
            :5
        ]
        its = self.stage.name, model, version, outcome, answer, scores
        before = -1 if self.before is None else places[self.before.key]
        beside = tuple([places[row.key] for row in self.beside])
        return StageOutput(*its, before, self.item, self.at_us, self.took_us, self.until_us, self.left_out, beside)


class Walk(FollowUp):
    """What one query has asked of its application's graph.

    Attributes:
        graph: of the application.
        model: that the policy has chosen, for the stage that answers.
        root_id: of the query.
        rows: all that was asked, or was not, by their ids.
        waiting: rows whose outputs have not come, by the ids that they travel under.
        joins: rows that have not been asked, by the id of a row that they wait for.
        lists: stages that have answered a list of items.
    """

    __slots__ = ("graph", "joins", "lists", "model", "root_id", "rows", "waiting")

    def __init__(self, asker: FollowsUp, graph: Graph, model: str, root_id: str) -> None:
        super().__init__(asker)
        self.graph = graph
        self.model = model
        self.root_id = root_id
        self.rows: dict[str, StageRow] = {}
        self.waiting: dict[str, StageRow] = {}
        self.joins: dict[str, list[StageRow]] = {}
        self.lists: set[str] = set()

    def add(self, row: StageRow) -> None:
        """Take a row."""
        place = [*self.graph.stages].index(row.stage.name)
        row.key = (*(row.before.key if row.before is not None else ()), (place, row.item))
        self.rows[row.row_id] = row

    def ordered(self) -> list[StageRow]:
        """Return the rows, each behind that before it, in an order that does not depend on when they were answered."""
        return sorted(self.rows.values(), key=_key)

    @property
    def is_list(self) -> bool:
        """Whether the answer is a list: of a stage behind one that has answered a list."""
        return not self.lists.isdisjoint(path(self.graph.answering, self.graph.stages))

    def clear(self) -> None:
        """Forget what was asked."""
        self.rows.clear()
        self.joins.clear()
        self.lists.clear()


def row_id(before: str, stage: str, item: int) -> str:
    """Return the id of a row, from the id of what is before it."""
    return f"{before}/{stage}.{item}"


def _key(row: StageRow) -> Key:
    return row.key
