"""Which contexts of an application are decided for most differently: by the weights that their states have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies import registry
from policies.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.avsc import Json
    from schemas.records import PolicyState

SHOWN: Final = 10


class DifferingContext(NamedTuple):
    """A context, and how far it is from the others.

    Attributes:
        context: its name.
        weights: of the models, in all 1.
        distance: in [0, 1]: the share of the weight that lies on other models than usually (total variation).
        lessons: how many its state has learnt.
        query_id: of its last answer.
    """

    context: str
    weights: tuple[float, ...]
    distance: float
    lessons: int
    query_id: str


class DifferingContexts(NamedTuple):
    """Those of an application that differ most.

    Attributes:
        application: whose they are.
        models: whose weights are told.
        usual: the mean of the weights of all contexts that were looked at.
        among: how many these are.
        found: the most different ones first.
    """

    application: str
    models: tuple[str, ...]
    usual: tuple[float, ...]
    among: int
    found: tuple[DifferingContext, ...]


def differing(
    application: str, states: Mapping[str, PolicyState], last: Mapping[str, str], most: int = SHOWN
) -> DifferingContexts:
    """Return the contexts whose weights are farthest from the mean of all.

    Args:
        application: whose they are.
        states: by context; those of other models or of a policy that there is not do not count.
        last: by context, the id of its last answer.
        most: how many are returned.
    """
    if not states:
        return DifferingContexts(application, (), (), 0, ())
    (models, _), *_ = Counter(state.arms for state in states.values()).most_common(1)
    known = {context: weights for context, state in states.items() if (weights := _weights(state, models)) is not None}
    if not known:
        return DifferingContexts(application, models, (), 0, ())
    table = np.array([*known.values()])
    usual = table.mean(axis=0)
    distances = 0.5 * np.abs(table - usual).sum(axis=1)
    ranked = sorted(zip(known, distances.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
    found = [
        DifferingContext(context, known[context], distance, states[context].version, last.get(context, ""))
        for context, distance in ranked[:most]
    ]
    return DifferingContexts(application, models, tuple(usual.tolist()), len(known), tuple(found))


def _weights(state: PolicyState, models: tuple[str, ...]) -> tuple[float, ...] | None:
    if state.arms != models:
        return None
    try:
        return registry.parse(state.policy).weights(state.values, len(models))
    except PolicyError:
        return None


def document(found: DifferingContexts) -> dict[str, Json]:
    """Return them as JSON values."""
    return {
        "application": found.application,
        "among": found.among,
        "usual": dict(zip(found.models, found.usual, strict=False)),
        "contexts": [
            {**one._asdict(), "weights": dict(zip(found.models, one.weights, strict=True))} for one in found.found
        ],
    }


def lines(found: DifferingContexts) -> Iterator[str]:
    """Yield what a person reads."""
    if not found.usual:
        yield f"none of the contexts of {found.application} that asked last has a state whose weights are known here"
        return
    yield f"usually: {_shares(found.models, found.usual)}, in the mean of {found.among:,} contexts that asked last"
    for one in found.found:
        yield f"{one.distance:6.1%}  {one.context}: {_shares(found.models, one.weights)}, {one.lessons:,} lessons"


def _shares(models: tuple[str, ...], weights: tuple[float, ...]) -> str:
    ranked = sorted(zip(models, weights, strict=True), key=lambda pair: -pair[1])
    return ", ".join(f"{model} {weight:.0%}" for model, weight in ranked[:3])
