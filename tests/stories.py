"""Stories from the records of a loop in virtual time, as the command and the page are given them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics
from schemas.records import Prediction
from streams.story import contexts
from streams.story.building import story
from streams.story.gathering import Gathering
from streams.story.learning import StateFold, is_shared, teaches
from streams.story.values import Told
from tests.loops import CODEC

if TYPE_CHECKING:
    from schemas.avsc import Json
    from streams.story.values import StateChange, Story
    from tests.loops import Loop

WINDOW_US = 130_000_000  # the loop's learner


def told(loop: Loop, query_id: str) -> Story:
    """Return a query's story from all records of a loop."""
    found = Gathering(CODEC, query_id)
    names = (*loop.models, *[stage.model for stage in loop.application.stages if stage.model])
    read = [topics.QUERIES, topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.SHADOWS, topics.FEEDBACK]
    read += [topics.OBSERVATIONS, *map(topics.dead_letters, (topics.QUERIES, topics.FEEDBACK))]
    for topic in (*read, *map(topics.model_queries, dict.fromkeys(names))):
        for record in loop.driver.read(topic):
            found.take(record)
    return story(found, taught(loop, found))


def taught(loop: Loop, found: Gathering) -> StateChange | None:
    """Return what a query has taught, as the reader of topics folds it."""
    if not found.observations:
        return None
    seen = found.observations[0].said
    shared = any(is_shared(one) for _, one in loop.observations())
    learns = StateFold(seen, WINDOW_US)
    for time_us, one in loop.observations():
        if teaches(one, seen.decision.state, "digits", is_shared=shared):
            learns.take(one, time_us)
    return learns.change


def known(loop: Loop, context: str | None = None) -> dict[str, Json]:
    """Return what `skysail story --application digits --json` prints of a loop's answers."""
    read = [(one, CODEC.decode(Prediction, one.value)) for one in loop.driver.read(topics.PREDICTIONS)]
    answers = tuple(Told(one.position, one.timestamp_us, said) for one, said in read if said.context == context)
    return contexts.document(contexts.ContextStory("digits", context, "digits", None, answers))
