"""One event of a `dsjson` log, as Vowpal Wabbit reads it and Azure Personalizer exports it, as an observation.

    a, p                  the actions, counted from 1, and the probability of each, in one order
    _label_Action         the action that was shown, or _labelIndex, counted from 0; else the first of `a`
    _label_cost           what it cost; else the first `v` in `o`, which is a reward: the cost with its sign changed
    _label_probability    how likely it was, which has to be what `p` says
    c                     the context, and in `_multi` the actions with their features; `_tag` is an action's id
    pdrop                 the share of such events that were dropped: one that was kept counts 1 / (1 - pdrop)

An event that is no single decision, or does not fit, is left out for a reason that has a name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas.inputs import as_features
from streams.mapping.errors import MappingError
from streams.mapping.expressions import at_path
from streams.mapping.fields import FieldSource, time_us
from streams.trace.decided import LoggedChoice, checked_shares, observed, share_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Observation

MALFORMED: Final = "does not fit"
TWICE: Final = "its EventId was there before"
SLOTS: Final = "has several slots, each a decision of its own"
SKIPPED: Final = "is marked _skipLearn"
INACTIVE: Final = "was never activated (DeferredAction)"
CONTINUOUS: Final = "chooses a number, and no action"
DANGLING: Final = "is an outcome without its decision"
_CLOSE: Final = 1e-3  # by how much a rounded probability may miss
_FIRST_US: Final = -62_135_596_800_000_000  # the year 1: a default of .NET
_LAST_US: Final = 253_402_300_799_999_999  # the end of the year 9999
_TIME: Final = FieldSource(column="Timestamp")


class DsjsonForm(NamedTuple):
    """What a log does not say of itself.

    Attributes:
        application: whose decisions these are to be.
        low: the lowest cost.
        high: the highest one.
        features: paths to numbers of an event, or `PATH=VALUE`: 1 where that text is there, else 0.
        kept: the least share of events that was kept, 1 - pdrop: such an event weighs 1, all others less.
    """

    application: str
    low: float = -1.0
    high: float = 0.0
    features: tuple[str, ...] = ()
    kept: float = 1.0


class LeftOut(NamedTuple):
    """An event that cannot be judged.

    Attributes:
        reason: in words that are the same for all events of its kind.
        detail: what is wrong with this one; empty = the reason says it.
    """

    reason: str
    detail: str = ""


def kept_share(line: str) -> float:
    """Return which share of events like this one was kept; 1 where it does not say."""
    if '"pdrop"' not in line:
        return 1.0
    try:
        dropped = float(json.loads(line)["pdrop"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return 1.0  # such a line is left out for what it is
    return 1.0 - dropped if 0.0 <= dropped < 1.0 else 1.0


def event(line: str, form: DsjsonForm, name: str, last_us: int) -> Observation | LeftOut:
    """Return what a line tells, or why it is no decision that can be judged.

    Args:
        line: of the log.
        form: what it does not say.
        name: the id of an event that has none.
        last_us: the time of the line before; an event without a time comes right after it.
    """
    try:
        line.encode()  # bytes that were no UTF-8 are halves of letters
        found = json.loads(line)
        if not isinstance(found, dict):
            return LeftOut(MALFORMED, "an object is needed")
        reason = _is_other(found)
        return LeftOut(reason) if reason else _observation(found, form, name, last_us)
    except LookupError as error:
        return LeftOut(MALFORMED, f"it lacks {error}")
    except (ValueError, TypeError, ArithmeticError, RecursionError, MappingError) as error:
        return LeftOut(MALFORMED, f"{error}")


def _observation(found: Mapping[str, Any], form: DsjsonForm, name: str, last_us: int) -> Observation:
    at_us = time_us(_TIME, found["Timestamp"]) if "Timestamp" in found else last_us + 1
    features = as_features([_feature(found, path) for path in form.features]) if form.features else ()
    query_id = str(found.get("EventId") or name)
    query_id.encode()
    if not _FIRST_US <= at_us <= _LAST_US:
        raise ValueError(f"{found.get('Timestamp')!r:.80} is no time between the years 1 and 9999")
    dropped = float(found.get("pdrop", 0.0))
    if not 0.0 <= dropped < 1.0:
        raise ValueError(f"pdrop is {dropped}, and must lie in [0, 1)")
    weight = form.kept / (1.0 - dropped)
    its = query_id, form.application, None, features, at_us, at_us
    return observed(_choice(found, form), *its, None if weight == 1.0 else weight)


def _is_other(found: Mapping[str, Any]) -> str | None:
    """Say why an event is not one choice among some actions that is to be judged."""
    context = found.get("c")
    if "_outcomes" in found or (isinstance(context, dict) and "_slots" in context):
        return SLOTS
    if "pdf" in found or "_label_ca" in found:
        return CONTINUOUS
    if "a" not in found and "_label_cost" not in found:
        return DANGLING
    if found.get("_skipLearn"):
        return SKIPPED
    told = found.get("o") or ()
    if found.get("DeferredAction") and not any(isinstance(one, dict) and one.get("ActionTaken") for one in told):
        return INACTIVE
    return None


def _choice(found: Mapping[str, Any], form: DsjsonForm) -> LoggedChoice:
    """Return what was chosen among what, and what it cost."""
    actions = [int(action) for action in found["a"]]
    arms = _named(actions, found)
    place = _place(found, actions)
    shares = checked_shares([float(share) for share in found["p"]], place, len(arms))
    told = found.get("_label_probability")
    if told is not None and abs(float(told) - shares[place]) > _CLOSE:
        raise ValueError(f"_label_probability is {told}, and p says {shares[place]:g}")
    cost = _cost(found)
    return LoggedChoice(arms, shares, place, None if cost is None else share_of(cost, form.low, form.high))


def _named(actions: Sequence[int], found: Mapping[str, Any]) -> list[str]:
    """Return the actions' ids where all have one; else they are called by their numbers."""
    context = found.get("c")
    described = context.get("_multi") if isinstance(context, dict) else None
    if described is not None and not all(0 < action <= len(described) for action in actions):
        raise ValueError(f"the actions {actions} are not among the {len(described)} of _multi")
    tags = [one.get("_tag") if isinstance(one, dict) else None for one in described or ()]
    is_named = bool(tags) and all(isinstance(tag, str) and tag for tag in tags)
    arms = [str(tags[action - 1]) if is_named else str(action) for action in actions]
    if not arms or len({*arms}) < len(arms):
        raise ValueError(f"the actions are {arms}: each is there once")
    "".join(arms).encode()  # JSON may name halves of letters
    return arms


def _place(found: Mapping[str, Any], actions: Sequence[int]) -> int:
    """Return the place in `a` of what was shown."""
    shown = found.get("_label_Action")
    if shown is None and "_labelIndex" in found:
        shown = int(found["_labelIndex"]) + 1
    if shown is None:
        return 0
    if int(shown) not in actions:
        raise ValueError(f"action {shown} was shown, which is not in a: {list(actions)}")
    return actions.index(int(shown))


def _cost(found: Mapping[str, Any]) -> float | None:
    """Return what it cost; None where nobody has told."""
    if found.get("_label_cost") is not None:
        return float(found["_label_cost"])
    rewards = [one["v"] for one in found.get("o") or () if isinstance(one, dict) and one.get("v") is not None]
    return -float(rewards[0]) if rewards else None


def _feature(found: Mapping[str, Any], path: str) -> float:
    """Return a number, or whether a text is there."""
    where, equals, text = path.partition("=")
    value = at_path(found, where)
    if equals:
        return float(value == text)
    if isinstance(value, bool | int | float):
        return float(value)
    raise ValueError(f"{where} is {value!r:.80}, and no number; {where}=TEXT asks whether it is a text")
