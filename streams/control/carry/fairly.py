"""Long work beside the page: as much of the event loop as it takes is left to the others.

Faust needs about ten rounds of the event loop for a report. Where each round folds a hundred observations as well, and
the machine is busy, the page falls behind by minutes (measured: 40 to 130 s at each start, at a load of 20).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")
TURN_S: Final = 0.002


async def fairly(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items; once they have taken a turn, nothing is done for as long."""
    began_s = time.monotonic()
    for item in items:
        yield item
        took_s = time.monotonic() - began_s
        if took_s > TURN_S:
            await asyncio.sleep(took_s)
            began_s = time.monotonic()
