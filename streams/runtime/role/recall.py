"""Tells a kernel what its role has written since the time of what it begins with.

What is not complete is read again, and its outcome may have been written already: a role was killed before it could
commit, or two records that have one outcome lie in topics of which one was committed further than the other. Then the
log of outcomes knows.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from streams.operators.contract import CLOCKS_US
from streams.runtime.corrupt import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.operators.contract import Operator
    from streams.runtime.clock import Clock
    from streams.runtime.ports import Broadcast, TopicPartition
    from streams.runtime.role.definition import Ports

_log = logging.getLogger(__name__)
_POLL_MS = 500
_AT_ONCE = 64  # records of some observations each: some 2 ms
_STOP_S = 1.0


async def recall(name: str, starts: Mapping[TopicPartition, int], kernel: Operator, ports: Ports) -> None:
    """Give a kernel what its role has written since its first incomplete record, if it wants to know.

    Args:
        name: of the role, for its log.
        starts: the first incomplete offset of each partition of the main topic.
        kernel: is given the records.
        ports: positions, clock, and what was written.

    Raises:
        BrokerUnavailableError: ask again later.
    """
    if not kernel.needs().read_back.has_written or ports.written is None or ports.positions is None or not starts:
        return
    times_us = (await ports.positions.times(starts)).values()
    if not times_us:
        return
    age_s = (ports.clock.now_us() - min(times_us)) / 1e6
    _log.info("%s: the first record without an outcome is %.0f s old; reading what was written since", name, age_s)
    await _read(ports.written(max(0, min(times_us) - CLOCKS_US)), kernel, ports.clock)


async def _read(written: Broadcast, kernel: Operator, clock: Clock) -> None:
    try:
        await written.start()
        while not written.caught_up:
            records = readable(await written.poll(_POLL_MS))
            for begin in range(0, len(records), _AT_ONCE):
                kernel.on_records(records[begin : begin + _AT_ONCE], clock.now_us())
                await asyncio.sleep(0)  # other roles of this process answer meanwhile
    finally:
        await written.stop(_STOP_S)
