"""Tells a kernel what its role has written since the time of what it begins with.

      committed                                   now
    ──────┼────────────────────────────────────────┼──▶ time of the first incomplete record
          └── longer ago than `Needs.recalled_us` ─┘

What is not complete is read again, and its outcome may have been written already. Whoever reads the outcomes remembers
them for a while. Offsets that could not be committed for longer, as in an outage of the group's coordinator, make the
role read again what nobody remembers. Then the log of outcomes is asked.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streams.operators.contract import CLOCKS_US
from streams.runtime.corrupt import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.operators.contract import Operator
    from streams.runtime.ports import Broadcast, TopicPartition
    from streams.runtime.role.definition import Ports

_log = logging.getLogger(__name__)
_POLL_MS = 500
_STOP_S = 1.0


async def recall(name: str, starts: Mapping[TopicPartition, int], kernel: Operator, ports: Ports) -> None:
    """Give a kernel what its role has written since its first incomplete record, if that is old.

    Args:
        name: of the role, for its log.
        starts: the first incomplete offset of each partition of the main topic.
        kernel: says what is old; is given the records.
        ports: positions, clock, and what was written.

    Raises:
        BrokerUnavailableError: ask again later.
    """
    old_us = kernel.needs().recalled_us
    if not old_us or ports.written is None or ports.positions is None or not starts:
        return
    times_us = (await ports.positions.times(starts)).values()
    now_us = ports.clock.now_us()
    if not times_us or min(times_us) > now_us - old_us:
        return
    _log.warning(
        "%s: the first record without an outcome is %.0f s old; reading what was written since",
        name,
        (now_us - min(times_us)) / 1e6,
    )
    await _read(ports.written(max(0, min(times_us) - CLOCKS_US)), kernel)


async def _read(written: Broadcast, kernel: Operator) -> None:
    try:
        await written.start()
        while not written.caught_up:
            kernel.on_written(readable(await written.poll(_POLL_MS)))
    finally:
        await written.stop(_STOP_S)
