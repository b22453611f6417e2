"""Long work beside the page: as much of the event loop as it takes is left to the others.

Faust needs about ten rounds of the event loop for a report. Where each round folds a hundred observations as well, and
the machine is busy, the page falls behind by minutes (measured: 40 to 130 s at each start, at a load of 20). Half of
what little the process gets is still too much then: the work waits while the page sees nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

T = TypeVar("T")
TURN_S: Final = 0.002
PAUSE_S: Final = 0.1


async def fairly(items: Iterable[T], may_go: Callable[[], bool] = lambda: True) -> AsyncIterator[T]:
    """Yield items; once they have taken a turn, nothing is done for as long, and until it may go on."""
    began_s = time.monotonic()
    for item in items:
        yield item
        took_s = time.monotonic() - began_s
        if took_s > TURN_S:
            await asyncio.sleep(took_s)
            while not may_go():  # noqa: ASYNC110 - it depends on the time
                await asyncio.sleep(PAUSE_S)
            began_s = time.monotonic()
