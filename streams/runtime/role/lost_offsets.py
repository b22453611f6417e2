"""A group whose offsets are gone while what it has written is still there: it must not do all of it again.

Kafka forgets the offsets of a group that had no members for `offsets.retention.minutes`, a week; somebody may delete
them. Topics are kept longer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.ports import LogPositions, TopicPartition

_log = logging.getLogger(__name__)


async def recent_starts(
    name: str,
    committed: Mapping[TopicPartition, int | None],
    wrote: frozenset[TopicPartition],
    positions: LogPositions,
    window_us: int,
) -> Mapping[TopicPartition, int]:
    """Return where to begin instead of at the beginning: a window before the logs end.

    Args:
        name: of the role, for its log.
        committed: by the group, of what is assigned.
        wrote: where the role has written before, if it has run.
        positions: looks up ends and times.
        window_us: how much before the ends is still of use.

    Returns:
        Nothing where something is committed, or the role has never written: then offsets are what they should be.

    Raises:
        BrokerUnavailableError: ask again later.
    """
    if not wrote or not committed or any(offset is not None for offset in committed.values()):
        return {}
    if not any((await positions.ends(wrote)).values()):
        return {}
    starts = await positions.before(await positions.ends([*committed]), window_us)
    _log.warning(
        "%s: nothing is committed, but it has run before: its group's offsets were deleted, or have expired. It begins"
        " %.0f s before the end of its topics; what is older and was not finished stays so",
        name,
        window_us / 1_000_000,
    )
    return starts
