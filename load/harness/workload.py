"""Makes queries from rows with known labels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.harness.openloop import Asked
from schemas.records import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input, Value


@dataclass(slots=True)
class Rows:
    """Asks an application about the same rows in order, over and over; ids follow from the seed and the index alone.

    Args:
        application: which application is asked.
        inputs: the rows.
        labels: the true label of each row; empty = unknown.
        contexts: of the query with that index, cyclically; empty = none.
        seed: of the ids.
        slo_ms: the objective that the queries carry; None = the application's.
        priorities: of the query with that index, cyclically; empty = none.
    """

    application: str
    inputs: Sequence[Input]
    labels: Sequence[Value] = ()
    contexts: Sequence[str] = ()
    seed: int = 0
    slo_ms: float | None = None
    priorities: Sequence[int] = ()

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        row = index % len(self.inputs)
        query = Query(
            query_id=query_id(self.seed, index),
            application=self.application,
            input=self.inputs[row],
            context=self.contexts[index % len(self.contexts)] if self.contexts else None,
            sent_us=intended_us,
            slo_ms=self.slo_ms,
            priority=self.priorities[index % len(self.priorities)] if self.priorities else 0,
        )
        return Asked(query, self.labels[row] if self.labels else None)


def query_id(seed: int, index: int) -> str:
    """Return a 32-digit id: different for every (seed, index), the same on every machine."""
    return hashlib.blake2b(b"%d:%d" % (seed, index), digest_size=16).hexdigest()
