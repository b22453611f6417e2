"""Reads the states of the contexts that asked last, and tells which of them differ most.

The end of `predictions` names the contexts, so the store is asked for a bounded number of keys and never searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deploy.errors import UsageError
from deploy.state.context_story import decoded, searched, stored
from deploy.state.topics import partition_counts
from schemas import topics
from streams.story.differing import DifferingContexts, differing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Record

MOST_CONTEXTS: Final = 1_000
MOST_BYTES: Final = 16 << 20  # of predictions: a second


async def read_differing(
    settings: Settings, codec: Codec, application: str, told: Callable[[str], None]
) -> DifferingContexts:
    """Return those of an application's contexts, of the last that asked, whose states differ most from the others'.

    Raises:
        Unreachable: no broker answers.
        UsageError: there are no predictions to look in, or none of a context.
        StoreUnavailableError: the store does not answer.
    """
    counts = partition_counts(settings)
    if topics.PREDICTIONS not in counts:
        message = f"there is no topic {settings.prefix}.{topics.PREDICTIONS}; `skysail topics create` makes it"
        raise UsageError(message)
    names: dict[str, str] = {}
    last: dict[str, str] = {}

    def enough(records: Sequence[Record]) -> bool:
        for record in reversed(records):
            said = decoded(codec, record)
            if said is None or said.application != application or said.context is None or said.decision is None:
                continue
            if len(names) < MOST_CONTEXTS and said.context not in names:
                names[said.context], last[said.context] = said.decision.state, said.query_id
        return len(names) >= MOST_CONTEXTS

    numbers = range(counts[topics.PREDICTIONS])
    await searched(settings, numbers, application.encode(), MOST_BYTES, enough, told)
    if not names:
        raise UsageError(
            f"no context of application {application} stands in the last {MOST_BYTES >> 20} MiB of answers"
        )
    states = dict(await stored(settings, codec, [*names.values()], counts.get(topics.OBSERVATIONS, 1)))
    known = {context: state for context, name in names.items() if (state := states.get(name)) is not None}
    return differing(application, known, last)
