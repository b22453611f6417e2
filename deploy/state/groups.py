"""Reads the groups into which an application's policy has split those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.errors import UsageError
from deploy.state.context_story import stored
from deploy.state.topics import partition_counts
from schemas import topics
from streams.story.groups import groups_of

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.story.groups import TreeGroup


async def read_groups(settings: Settings, codec: Codec, application: str) -> tuple[TreeGroup, ...]:
    """Return the groups that are common to all contexts.

    Raises:
        Unreachable: no broker answers.
        PolicyError: the application's policy has none.
        UsageError: nothing is learnt yet.
        StoreUnavailableError: the store does not answer.
    """
    count = partition_counts(settings).get(topics.OBSERVATIONS, 1)
    state = dict(await stored(settings, codec, [application], count)).get(application)
    if state is None:
        raise UsageError(f"application {application} has learnt nothing yet: send feedback")
    return groups_of(state)
