"""Who draws: a query by its own id, or who asks, whose draw then stands for a while.

    assign: query     every query draws for itself
    assign: context   a context (a person) draws once for `sticky_s`, or for ever: the same version, the same number
    assign: episode   all queries of an episode go by one draw
    none is named     the query draws for itself, and is counted

Periods of different contexts begin at different times, so that never all of them change at once. A draw is a number u
in [0, 1). What stays the same is u, not the model: that is the one at which the probabilities of today, summed up, pass
u. So a model stays until the policy's probabilities move across u, and the probability with which it was drawn, over
all who might have asked, is the one of today. That is the propensity which a decision has. Where a state
ranks, or chooses items, what it explores goes by u likewise.

Queries of one context in one period are no independent evidence: whoever compares counts them as one. A state that
belongs to one context (`per_context`) would learn from one u alone, so there arms are drawn by the query all the same.

A holdout is a share of the contexts for which the policy does not decide. It is another draw, which neither a period
nor a new salt changes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from policies.draw import uniform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Application, Measurement, Observation

QUERY, CONTEXT, EPISODE = ASSIGNS = ("query", "context", "episode")
MOST_SALT: Final = 64  # characters: it stands in each prediction
MOST_HOLDOUT: Final = 0.5
_BETWEEN: Final = "\x1f"
_OF_EPISODE: Final = f"/{EPISODE}"


def drawn(application: Application, context: str | None, episode: str, at_us: int) -> str:
    """Return which draw counts for a query, SALT/PERIOD or SALT/episode; "" = its own.

    Args:
        application: says who draws.
        context: of the query.
        episode: of the query.
        at_us: when it was sent.
    """
    if application.assign == EPISODE:
        return f"{application.salt}{_OF_EPISODE}" if episode else ""
    if application.assign != CONTEXT or context is None:
        return ""
    return f"{application.salt}/{period(application, context, at_us)}"


def period(application: Application, context: str, at_us: int) -> int:
    """Return which of its periods a context is in; each context's begin at a time of its own."""
    sticky_us = int(application.sticky_s * 1e6)
    if not sticky_us:
        return 0
    return (at_us + int(uniform(_text(application.name, context), "phase") * sticky_us)) // sticky_us


def draw_id(application: Application, context: str | None, episode: str, its: str) -> str:
    """Return the text that draws instead of a query's id, given which draw counts."""
    who = episode if application.assign == EPISODE else context or ""
    return _text(application.name, who, its)


def unit(context: str | None, episode: str, its: str) -> str:
    """Return whose losses are one value for whoever compares: all under one draw of one context, or episode."""
    return _text(episode if its.endswith(_OF_EPISODE) else context or "", its)


def arm_unit(seen: Observation | Measurement) -> str:
    """Return whose draw decided which arm was asked, as `unit` does; "" = the query's own, as with `per_context`."""
    is_of_person = seen.drawn and seen.decision.state == seen.application
    return unit(seen.context, seen.episode, seen.drawn) if is_of_person else ""


def is_held_out(application: Application, context: str | None) -> bool:
    """Tell whether a context is one for which the policy never decides."""
    if not application.holdout or context is None:
        return False
    return uniform(_text(application.name, context), "holdout") < application.holdout


def faults(application: Application) -> Iterator[str]:
    """Yield what is impossible about who draws."""
    assign, sticky_s, holdout = application.assign, application.sticky_s, application.holdout
    if assign not in ASSIGNS:
        yield f"assign is {assign!r}, none of {', '.join(ASSIGNS)}"
    if not 0.0 <= sticky_s < inf:
        yield f"sticky_s is {sticky_s}; make it positive, or 0: for ever"
    if sticky_s and assign != CONTEXT:
        yield f"sticky_s is how long the draw of a context stands: set assign to {CONTEXT}"
    if len(application.salt) > MOST_SALT or _BETWEEN in application.salt:
        yield f"salt has more than {MOST_SALT} characters, or one that cannot be written"
    if not 0.0 <= holdout <= MOST_HOLDOUT:
        yield f"holdout is {holdout}; make it 0 (none) to {MOST_HOLDOUT}"


def _text(*parts: str) -> str:
    return _BETWEEN.join(parts)
