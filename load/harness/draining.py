"""A backlog that the system is left alone with: meanwhile the harness neither sends nor reads.

On a machine that both share, a sender costs the broker and itself a third of what the system needs for a query that
travels in large batches, and a reader as much again; of one that travels alone, next to nothing. A comparison of the
two would be one of sender and reader.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from load.harness import gc_off as collecting
from load.harness.rates import drain_rate
from schemas import topics
from schemas.framing import peek_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.harness.flood import Made
    from load.harness.wire import Wire

_LOOK_S = 0.05


class Drained(NamedTuple):
    """What came of it.

    Attributes:
        per_s: answers a second, from when all queries were written to when 95 % had an answer.
        lost: queries without an answer.
    """

    per_s: float
    lost: int


def drain(queries: Sequence[Made], wire: Wire, now_us: Callable[[], int], limit_s: float) -> Drained:
    """Send everything at once, wait until as many answers are written or `limit_s` is over, then read them.

    Args:
        queries: from `make`.
        wire: follows `predictions` from its end; the broker stamps these when it appends them.
        now_us: the clock.
        limit_s: how long the last answer is waited for.
    """
    wire.hold()
    with collecting.stopped():
        for made in queries:
            wire.produce(topics.QUERIES, made.key, made.query)
    wire.flush()
    written_us = now_us()
    while wire.appended(asking=True) < len(queries) and now_us() < written_us + limit_s * 1e6:
        time.sleep(_LOOK_S)
    wire.go_on()
    appended_us: dict[str | None, int] = {}
    for arrival in wire.written():
        appended_us.setdefault(peek_id(arrival.value), arrival.timestamp_us)
    mine = [appended_us[made.query_id] for made in queries if made.query_id in appended_us]
    return Drained(drain_rate(mine, written_us, len(queries)), len(queries) - len(mine))
