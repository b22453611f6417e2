"""Rankings whose places are all drawn evenly, for a share of the queries: by these, other rankings can be judged.

Draws follow from the query's id alone, so a replay makes the same ones. That is so where who asks draws everything
else (`assign`), too: nobody is shown drawn rankings alone, and each is evidence of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.draw import uniform
from schemas.records import Tensor

if TYPE_CHECKING:
    from policies.contract import Ranking, Read


def with_drawn(
    found: Ranking, read: Read, rows: Tensor, top: int, share: float, query_id: str
) -> tuple[Ranking, tuple[int, ...]]:
    """Return a ranking as it is shown, and the places of its candidates where all of them were drawn.

    Args:
        found: by the state.
        read: the state.
        rows: of the candidates.
        top: how many places there are.
        share: of the rankings, that are drawn.
        query_id: from which the draws follow.
    """
    count = len(found.shares)
    shares = tuple([(1.0 - share) * one + share / count for one in found.shares])
    if uniform(query_id, "slate") >= share:
        return found._replace(shares=shares), ()
    left = [*range(count)]
    best = tuple([left.pop(int(uniform(query_id, f"slate {at}") * len(left))) for at in range(min(top, count))])
    first = read.rank(Tensor.of(np.ascontiguousarray(rows.numpy()[best[0], None])), 1, 0.0)
    assert first is not None  # its row is one of those that were ranked
    return found._replace(best=best, shares=shares, answer=first.answer, confidence=first.confidence), best
