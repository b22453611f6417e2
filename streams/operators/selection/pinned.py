"""Which models a query that names a version asks: what its policy has drawn, unless that does not run it.

    MODEL@VERSION ─▶ of an application that asks one model alone: that one
    VERSION       ─▶ if the model that was drawn does not run it: one that does, by the query's own draw

The client has chosen then, not the policy: such an answer teaches nothing, since it would be held against models that
were never tried on its like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.draw import uniform
from schemas.topics import MODEL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Model

# Labels of the version that serves, and of those beside it that answer a share of the queries.
STABLE, CANARY = "stable", "canary"


def named(
    version: str, query_id: str, drawn: tuple[str, ...], arms: tuple[str, ...], models: Mapping[str, Model]
) -> tuple[str, ...]:
    """Return the models to ask.

    Args:
        version: that the query names: a version, label, or MODEL@VERSION.
        query_id: draws among several.
        drawn: what the policy would ask.
        arms: the application's models.
        models: that are deployed, by name.

    Returns:
        `drawn` itself where that will do; nothing where no model of the application can answer.
    """
    model, is_of_one, _ = version.partition(MODEL_VERSION)
    if is_of_one and model not in arms:
        return ()
    if len(drawn) != 1:  # an ensemble: whoever does not run it is left out
        return drawn
    if is_of_one:
        return drawn if drawn == (model,) else (model,)
    if _runs(models.get(drawn[0]), version):
        return drawn
    others = [name for name in arms if _runs(models.get(name), version)]
    return (others[int(uniform(query_id, "named") * len(others))],) if others else drawn


def _runs(model: Model | None, version: str) -> bool:
    """Tell whether a version of a model can be asked, by its number or label; shadows never answer."""
    if model is None:
        return False
    if version == CANARY:
        return any(share > 0 for share in model.shares.values())
    return version in {STABLE, model.version} or model.shares.get(version, 0.0) > 0
