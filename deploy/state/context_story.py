"""Reads what is known of a context: its state from the store, its last answers from the end of `predictions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deploy.config.addresses import connection
from deploy.connect.clients import answering
from deploy.connect.stores import state_store
from deploy.errors import UsageError
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Prediction
from streams.operators.contract import StateKey
from streams.runtime.kafka.log_search import KafkaSearch
from streams.story.contexts import ContextStory, names, which
from streams.story.values import Told
from streams.topology import partition_of, state_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Record
    from streams.runtime.kafka.log_search import SearchResult

LAST: Final = 10  # answers that are shown
MOST_BYTES: Final = 512 << 20  # of predictions: one second or two
_TIMEOUT_S: Final = 5.0


async def read_context(
    settings: Settings, codec: Codec, application: str, context: str | None, told: Callable[[str], None]
) -> ContextStory:
    """Return what is known of a context, or of an application's own state.

    Args:
        settings: of the deployment.
        codec: of its records and states.
        application: whose it is.
        context: its name; None = the application's own.
        told: hears how far a long search is.

    Raises:
        Unreachable: no broker answers.
        UsageError: there are no predictions to look in.
        StoreUnavailableError: the store does not answer.
    """
    counts = partition_counts(settings)
    if topics.PREDICTIONS not in counts:
        message = f"there is no topic {settings.prefix}.{topics.PREDICTIONS}; `skysail topics create` makes it"
        raise UsageError(message)
    answers, notes = await _answers(settings, codec, application, context, counts, told)
    found = await stored(settings, codec, names(application, context), counts.get(topics.OBSERVATIONS, 1))
    name = which(found, answers)
    return ContextStory(application, context, name, dict(found)[name], tuple(answers), tuple(notes))


async def stored(
    settings: Settings, codec: Codec, wanted: Sequence[str], partitions: int
) -> list[tuple[str, PolicyState | None]]:
    """Return states by their names; None = none is stored.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    store = state_store(settings, codec, _TIMEOUT_S)
    keys = {name: StateKey(state_partition(name, partitions), name) for name in wanted}
    try:
        read = await store.read(keys.values())
    finally:
        await store.close()
    return [(name, read.states.get(key)) for name, key in keys.items()]


async def _answers(
    settings: Settings,
    codec: Codec,
    application: str,
    context: str | None,
    counts: dict[str, int],
    told: Callable[[str], None],
) -> tuple[list[Told[Prediction]], list[str]]:
    """Return the last answers, the newest first, and what was not read."""
    count = counts[topics.PREDICTIONS]
    numbers: Sequence[int] = range(count) if context is None else [partition_of(context.encode(), count)]
    found: dict[tuple[int, int], Told[Prediction]] = {}

    def enough(records: Sequence[Record]) -> bool:
        for record in records:
            said = decoded(codec, record)
            if said is not None and said.application == application and context in {None, said.context}:
                found[record.partition, record.offset] = Told(record.position, record.timestamp_us, said)
        return len(found) >= LAST

    needle = (application if context is None else context).encode()
    result = await searched(settings, numbers, needle, MOST_BYTES, enough, told)
    newest = sorted(found.values(), key=lambda one: one.said.answered_us, reverse=True)[:LAST]
    is_cut = not result.is_all and len(newest) < LAST
    return newest, [f"only the newest {MOST_BYTES >> 20} MiB of its answers' partition were read"] * is_cut


async def searched(
    settings: Settings,
    numbers: Sequence[int],
    needle: bytes,
    most_bytes: int,
    enough: Callable[[Sequence[Record]], bool],
    told: Callable[[str], None],
) -> SearchResult:
    """Search partitions of `predictions` from their ends back.

    Args:
        settings: of the deployment.
        numbers: of the partitions.
        needle: that a record holds.
        most_bytes: that are read, about.
        enough: tells whether the search may end, by all that was found.
        told: hears how far a long search is.

    Raises:
        Unreachable: no broker answers.
    """

    def heard(result: SearchResult) -> None:
        if result.bytes > 1 << 26:
            told(f"{topics.PREDICTIONS}: {result.bytes / 1e6:,.0f} MB")

    search = KafkaSearch(connection(settings), {topics.PREDICTIONS: max(numbers) + 1})
    with answering(settings):
        await search.start()
        try:
            places = [(topics.PREDICTIONS, number) for number in numbers]
            return await search.find_newest(places, (needle,), most_bytes, enough, heard)
        finally:
            await search.stop()


def decoded(codec: Codec, record: Record) -> Prediction | None:
    """Return the prediction that a record is; None = it is none."""
    try:
        return codec.decode(Prediction, record.value or b"")
    except DecodeError:
        return None
