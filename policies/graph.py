"""An application's graph: its stages, each after the one whose answer it is asked about. Pure.

    query ─▶ detect ─┬─ label == car ──▶ cars ─▶ the answer
                     └─ label == face ─▶ faces

Every stage has one stage before it, or the query. So a graph is a tree, or several side by side, and every answer has
one path to it. One stage names no model: it asks the one that the application's policy has chosen, and its answer is
the application's.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from policies.conditions import parse
from policies.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Stage

QUERY: Final = "query"
MOST_STAGES: Final = 16
_LONGEST, _LONGEST_CONDITION = 64, 1_000  # letters: names travel in the ids of rows
MOST_ITEMS: Final = 256  # of one answer that a stage may be asked about


class Graph:
    """The stages of an application, as its record has them, ready to be walked.

    Attributes:
        stages: in their order.
        after: the stages that come after each, by name; those about the query by the empty name.
        answering: the stage whose answer is the application's.
        depths: how many stages come before each, by name.
    """

    __slots__ = ("after", "answering", "depths", "stages")

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self.stages = {stage.name: stage for stage in stages}
        self.after: dict[str, list[Stage]] = {"": [], **{stage.name: [] for stage in stages}}
        for stage in stages:
            self.after[before(stage)].append(stage)
        self.answering = next(stage for stage in stages if not stage.model)
        self.depths = {stage.name: len(path(stage, self.stages)) - 1 for stage in stages}


@lru_cache(maxsize=256)
def graph_of(stages: tuple[Stage, ...]) -> Graph:
    """Return the graph of stages without a fault."""
    return Graph(stages)


def before(stage: Stage) -> str:
    """Return the stage about whose answer a stage is asked; empty = it is asked about the query."""
    named = source(stage)[0]
    return stage.after or ("" if named == QUERY else named)


def source(stage: Stage) -> tuple[str, str]:
    """Return what a stage's model is given: `query` or a stage, and the field of its item."""
    name, _, field = stage.input.partition(".")
    return name, field


def path(stage: Stage, stages: dict[str, Stage]) -> tuple[str, ...]:
    """Return the names of the stages up to one, the first of them first.

    Raises:
        PolicyError: they go round in a circle.
    """
    found = [stage.name]
    while name := before(stages[found[-1]]):
        if name in found:
            circle = " after ".join([*found[found.index(name) :], name])
            raise PolicyError(f"stages go round in a circle: {circle}")
        found.append(name)
    return tuple(reversed(found))


def faults(stages: Sequence[Stage]) -> list[str]:
    """Return what is wrong with the stages of an application, each as a sentence; nothing if they can be run."""
    names = [stage.name for stage in stages]
    found = [f"there are {len(stages)} stages; {MOST_STAGES} are the most"] if len(stages) > MOST_STAGES else []
    found += [f"two stages are called {name!r}" for name in sorted({name for name in names if names.count(name) > 1})]
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
    for named in {before(stage), source(stage)[0]} - {"", QUERY, *names}:
        near = get_close_matches(named, names, n=1)
        yield f"there is no stage {named!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if source(stage) == (QUERY, "") and not stage.after and (stage.where or stage.crop):
        yield "`where` and `crop` are about the answer of an earlier stage; name it in `after`"
    if source(stage)[0] == QUERY and source(stage)[1]:
        yield f"{stage.input!r}: a query has no fields; write query, a stage, or STAGE.FIELD"
    if stage.crop and source(stage)[0] != QUERY:
        yield "`crop` cuts the query's image; leave `input` out"
    if not 1 <= stage.most <= MOST_ITEMS:
        yield f"most is {stage.most}; it must be 1 to {MOST_ITEMS}"
    if not 0 < stage.share <= 1:
        yield f"share is {stage.share}, not in (0, 1]"
    try:
        parse(stage.where)
    except PolicyError as error:
        yield f"where: {error}"


def _circles(stages: Sequence[Stage]) -> list[str]:
    """Return a sentence where stages go round, or a stage takes its input from one that is not before it."""
    known = {stage.name: stage for stage in stages}
    found: dict[str, None] = {}
    for stage in stages:
        try:
            its = path(stage, known)
        except PolicyError as error:
            return [str(error)]
        named = source(stage)[0]
        if named not in {QUERY, *its[:-1]}:
            found[f"stage {stage.name}: its input is from {named}, which does not come before it"] = None
    return [*found]
