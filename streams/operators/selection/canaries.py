"""Which version of its model each arm of a decision is drawn for: noted, so that canaries teach the arm nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from policies import draw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Application, Decision, Model
    from streams.operators.selection.pending import Pending

# Decisions that are kept, so that many queries go on sharing one.
_DECISIONS = 1_024


def canary_shares(
    arms: Sequence[str], models: Mapping[str, Model], application: Application | None
) -> dict[int, Mapping[str, float]]:
    """Return the shares of the canaries of arms, by index; an arm whose version the application names has none.

    Args:
        arms: models by name.
        models: that are deployed, by name.
        application: that asks them.
    """
    named = () if application is None else application.versions
    found = {}
    for index, name in enumerate(arms):
        model = models.get(name)
        if model is not None and model.shares and name not in named and any(model.shares.values()):
            found[index] = model.shares
    return found


def with_versions(query: Pending, shares: Mapping[int, Mapping[str, float]]) -> Decision | None:
    """Return a query's decision with the probability that the version that serves was drawn, by arm.

    It is 0 where a canary was. A query that names a version is as it was: its prediction has no decision.

    Workers draw by the same id and shares. Where a canary is not loaded, the version that serves answers for it; that
    teaches nothing either, so that what does teach is drawn independently of who is loaded.

    Args:
        query: that was decided.
        shares: of the canaries, by index of the arm.
    """
    decision = query.decision
    if decision is None or query.version is not None:
        return decision
    stable = [1.0] * len(decision.arms)
    for index, each in shares.items():
        stable[index] = 0.0 if draw.version(query.query_id, each) else max(0.0, 1.0 - sum(each.values()))
    return _noted(decision, tuple(stable))


@lru_cache(maxsize=_DECISIONS)
def _noted(decision: Decision, stable: tuple[float, ...]) -> Decision:
    return decision._replace(stable=stable)
