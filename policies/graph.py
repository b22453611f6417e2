"""An application's graph: its stages, each after the one whose answer it is asked about. Pure.

    query ─▶ detect ─┬─ label == car ──▶ cars ─▶ the answer
                     └─ label == face ─▶ faces

Every stage is asked about the items of one stage before it, or about the query. So every row has one path to it. A
stage may take answers of other stages beside that one, those that belong to the same items, and waits for them, too.
One stage names no model: it asks the one that the application's policy has chosen, and its answer is the application's.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from policies.conditions import parse
from policies.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.records import Stage

QUERY: Final = "query"
MOST_STAGES: Final = 16
_LONGEST, _LONGEST_CONDITION = 64, 1_000  # letters: names travel in the ids of rows
MOST_PARTS: Final = 16  # of a model's input: each may be as large as an answer
MOST_ITEMS: Final = 256  # of one answer that a stage may be asked about


class Graph:
    """The stages of an application, as its record has them, ready to be walked.

    Attributes:
        stages: in their order.
        after: the stages that come after each, by name; those about the query by the empty name.
        answering: the stage whose answer is the application's.
        beside: the stages that each waits for beside those on the path to it, by name.
        depths: how many stages come before each, by name.
    """

    __slots__ = ("after", "answering", "beside", "depths", "stages")

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self.stages = {stage.name: stage for stage in stages}
        self.after: dict[str, list[Stage]] = {"": [], **{stage.name: [] for stage in stages}}
        for stage in stages:
            self.after[before(stage)].append(stage)
        self.answering = next(stage for stage in stages if not stage.model)
        paths = {stage.name: path(stage, self.stages) for stage in stages}
        self.beside = {
            stage.name: tuple([name for name in needed(stage) if name not in paths[stage.name]]) for stage in stages
        }
        self.depths: dict[str, int] = {}
        for stage in ordered(stages):
            self.depths[stage.name] = max((self.depths[name] + 1 for name in needed(stage)), default=0)


@lru_cache(maxsize=256)
def graph_of(stages: tuple[Stage, ...]) -> Graph:
    """Return the graph of stages without a fault."""
    return Graph(stages)


def before(stage: Stage) -> str:
    """Return the stage about whose items a stage is asked; empty = it is asked about the query."""
    return stage.after or next((name for name, _ in sources(stage) if name != QUERY), "")


def sources(stage: Stage) -> tuple[tuple[str, str], ...]:
    """Return what a stage's model is given, in order: each the query or a stage, and the field of its item."""
    parts = [part.strip().partition(".") for part in stage.input.split(",")]
    return tuple([(name, field) for name, _, field in parts])


def needed(stage: Stage) -> tuple[str, ...]:
    """Return the stages that a stage waits for, the one about whose items it is asked first."""
    names = [before(stage), *[name for name, _ in sources(stage) if name != QUERY]]
    return tuple(dict.fromkeys(name for name in names if name))


def ordered(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages, each behind those that it waits for.

    Raises:
        PolicyError: they go round in a circle.
    """
    known = {stage.name: stage for stage in stages}
    try:
        order = [*TopologicalSorter({stage.name: needed(stage) for stage in stages}).static_order()]
    except CycleError as error:
        raise PolicyError(f"stages go round in a circle: {' after '.join(reversed(error.args[1]))}") from error
    return [known[name] for name in order]


def path(stage: Stage, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the names of the stages up to one, the first of them first: each about the items of the one before."""
    found = [stage.name]
    while name := before(stages[found[-1]]):
        found.append(name)
    return tuple(reversed(found))


def faults(stages: Sequence[Stage]) -> list[str]:
    """Return what is wrong with the stages of an application, each as a sentence; nothing if they can be run."""
    if len(stages) > MOST_STAGES:
        return [f"there are {len(stages)} stages; {MOST_STAGES} are the most"]
    names = [stage.name for stage in stages]
    found = [f"two stages are called {name!r}" for name in sorted({name for name in names if names.count(name) > 1})]
    unnamed = [stage.name for stage in stages if not stage.model]
    if len(unnamed) != 1:
        have = f"{', '.join(unnamed)} do" if unnamed else "each does"
        found.append(
            f"one stage must name no model, as the policy chooses its model among `models`, and it answers; {have}"
            + (" not name one" if unnamed else " name one")
        )
    for stage in stages:
        found += [f"stage {stage.name}: {fault}" for fault in _faults_of(stage, names)]
    return found or _circles(stages)


def _faults_of(stage: Stage, names: Sequence[str]) -> Iterator[str]:
    if not stage.name.isidentifier() or stage.name == QUERY or len(stage.name) > _LONGEST:
        yield f"its name must be a word of at most {_LONGEST} letters, other than {QUERY!r}"
    if len(stage.where) > _LONGEST_CONDITION:
        yield f"`where` has more than {_LONGEST_CONDITION} letters"
        return
    if stage.input.count(",") >= MOST_PARTS:
        yield f"`input` names more than {MOST_PARTS} parts"
        return
    yield from _faults_of_input(stage, names)
    if not 1 <= stage.most <= MOST_ITEMS:
        yield f"most is {stage.most}; it must be 1 to {MOST_ITEMS}"
    if not 0 < stage.share <= 1:
        yield f"share is {stage.share}, not in (0, 1]"
    try:
        parse(stage.where)
    except PolicyError as error:
        yield f"where: {error}"


def _faults_of_input(stage: Stage, names: Sequence[str]) -> Iterator[str]:
    for named in sorted({*needed(stage)}.difference(names)):
        near = get_close_matches(named, names, n=1)
        yield f"there is no stage {named!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if any(not name for name, _ in sources(stage)):
        yield f"`input` is {stage.input!r}: name the query, a stage or STAGE.FIELD before and after each comma"
    if any(name == QUERY and field for name, field in sources(stage)):
        yield f"{stage.input!r}: a query has no fields; write query, a stage, or STAGE.FIELD"
    if not needed(stage) and (stage.where or stage.crop):
        yield "`where` and `crop` are about the answer of an earlier stage; name it in `after`"
    if stage.crop and (QUERY, "") not in sources(stage):
        yield "`crop` cuts the query's image; leave `input` out, or name query in it"


def _circles(stages: Sequence[Stage]) -> list[str]:
    """Return a sentence where stages go round."""
    try:
        ordered(stages)
    except PolicyError as error:
        return [str(error)]
    return []
