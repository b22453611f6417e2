"""From what was gathered to the story, with what is not known and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.story.legs import legs
from streams.story.values import Story

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.story.gathering import Gathering
    from streams.story.values import StateChange


def story(found: Gathering, change: StateChange | None = None, notes: Iterable[str] = ()) -> Story:
    """Return the story of a query.

    Args:
        found: what the log says about it.
        change: what it taught.
        notes: of the reader: what was not looked at, and why.
    """
    answers = sorted(found.answers, key=lambda one: one.said.answered_us)
    answer = answers[0] if answers else None
    return Story(
        found.query_id,
        tuple(sorted(found.queries, key=lambda one: one.time_us)),
        tuple(answers),
        legs(found, answer),
        tuple(sorted(found.feedback, key=lambda one: one.time_us)),
        tuple(sorted(found.observations, key=lambda one: one.time_us)),
        change,
        tuple(sorted(found.dead, key=lambda one: one.time_us)),
        (*notes, *_missing(found)),
    )


def _missing(found: Gathering) -> Iterator[str]:
    """Yield what the topics that were read do not have."""
    if found.answers and not found.queries:
        yield "the query itself is not there any more: topic queries is kept for a day"
    asked = {output.model for one in found.answers for output in one.said.outputs}
    told = {one.said.model for one in found.questions} | {one.said.output.model for one in found.outputs}
    if unknown := sorted(asked - told):
        yield (
            f"no record of a question to {', '.join(unknown)}: it was answered from the cache or inside selection's"
            " own process, or is older than an hour"
        )
    if found.queries and not found.answers:
        yield "there is no answer: see `skysail doctor`"
    if len(found.answers) > 1:
        yield f"{len(found.answers)} answers have this id; this is the first, from which is learnt"
