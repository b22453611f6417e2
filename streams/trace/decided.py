"""Makes observations of rows that say what another system chose, how likely that was, and what it cost.

chosen: {column: _labelIndex}                     which arm: its name, or with `by: place` its place among the arms
propensity: {column: p}                           of what was chosen, in (0, 1], or a list: of each arm
arms: {column: a}                                 what there was to choose from; or {value: [a, b, c]}
cost: {column: _label_cost, low: -1, high: 0}     becomes a loss in [0, 1]; `reward` does, too, and `loss` is one
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.records import Decision, JoinStatus, Observation
from streams.operators.contract import Record
from streams.topology import state_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.codec import Codec
    from streams.mapping.fields import FieldSource
    from streams.trace.mapping import TraceMapping
    from streams.trace.tables import Row

LOGGED: Final = "logged"  # the name of the policy that decided
PLACE: Final = "place"
_SUM: Final = 1e-3  # by how much rounded probabilities may miss 1


class LoggedChoice(NamedTuple):
    """What was chosen, among what.

    Attributes:
        arms: by name.
        shares: the probability of each.
        place: of what was chosen.
        loss: that it cost, in [0, 1]; None = nobody has told.
    """

    arms: Sequence[str]
    shares: Sequence[float]
    place: int
    loss: float | None


def loss_of(row: Row, mapping: TraceMapping) -> float | None:
    """Return a row's loss in [0, 1]; None where its cell is empty.

    Raises:
        ValueError: it is no number, or outside the bounds that the mapping names.
    """
    for source, is_reward in ((mapping.loss, False), (mapping.cost, False), (mapping.reward, True)):
        if source is None:
            continue
        value = source.of(row)
        if value is None or value == "":
            return None
        low, high = (0.0, 1.0) if source.bounds is None else source.bounds
        share = share_of(float(value), low, high)
        return 1.0 - share if is_reward else share
    return None


def share_of(value: float, low: float, high: float) -> float:
    """Return where a value lies between its bounds, in [0, 1].

    Raises:
        ValueError: it lies outside of them.
    """
    share = (value - low) / (high - low)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{value:g} is not between {low:g} and {high:g}: name the bounds with `low` and `high`")
    return share


def observation(
    row: Row, mapping: TraceMapping, query_id: str, application: str, context: str | None,
    features: tuple[float, ...], at_us: int, known_us: int,
) -> Observation:  # fmt: skip
    """Return what a row says of a decision; without a loss it is one that nobody told about.

    Raises:
        TraceError: a column is missing.
        ValueError: what was chosen is none of the arms, or probabilities are none.
        TypeError: the arms are no list.
    """
    assert mapping.chosen is not None
    assert mapping.propensity is not None
    given = _plain(mapping.propensity.of(row))
    arms = _arms(given, row, mapping)
    place = _place(mapping.chosen, row, arms)
    shares = _propensities(given, place, len(arms))
    choice = LoggedChoice(arms, shares, place, loss_of(row, mapping))
    return observed(choice, query_id, application, context, features, at_us, known_us)


def observed(
    choice: LoggedChoice, query_id: str, application: str, context: str | None,
    features: tuple[float, ...], at_us: int, known_us: int, weight: float | None = None,
) -> Observation:  # fmt: skip
    """Return a choice as an observation, its arms in an order that is the same in every row."""
    arms, shares, place, loss = choice
    order = sorted(range(len(arms)), key=lambda number: (len(arms[number]), arms[number]))
    at = order.index(place)
    decision = Decision(
        chosen=(at,),
        state_version=0,
        state=state_name(application, context),
        policy=LOGGED,
        arms=tuple([arms[number] for number in order]),
        propensities=tuple([shares[number] for number in order]),
        features=features,
    )
    losses = tuple([loss if number == at else None for number in range(len(arms))])
    status = JoinStatus.DEFAULT if loss is None else JoinStatus.JOINED
    its = query_id, application, context, decision, losses, loss, None, status, at_us, known_us
    return Observation(*its, weight=weight)


def record(seen: Observation, offset: int, codec: Codec) -> Record:
    """Return an observation as it would have been in Kafka."""
    key = seen.decision.state.encode()
    return Record(topics.OBSERVATIONS, 0, offset, seen.observed_us, key, codec.encode(seen))


def _plain(value: Any) -> Any:
    """Return a list that is written as text, as in CSV, or an array, as a list; all else as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _arms(given: Any, row: Row, mapping: TraceMapping) -> list[str]:
    """Return the arms by name; those that neither a column nor a value names are numbered, as the probabilities are."""
    listed = _plain(mapping.arms.of(row)) if mapping.arms is not None else given
    if not isinstance(listed, list | tuple):
        raise TypeError(f"`arms` is to be a list of what there was to choose from, not {listed!r}")
    found = [str(arm) for arm in listed] if mapping.arms is not None else [str(n + 1) for n in range(len(listed))]
    if len(set(found)) != len(found) or not found:
        raise ValueError(f"the arms are {found}: name each once")
    return found


def _place(chosen: FieldSource, row: Row, arms: Sequence[str]) -> int:
    value = chosen.of(row)
    if chosen.by == PLACE:
        place = int(value)
        if not 0 <= place < len(arms):
            raise ValueError(f"place {place} was chosen, and there are {len(arms)} arms; the first place is 0")
        return place
    if str(value) not in arms:
        raise ValueError(f"{value!r} was chosen, which is none of the arms {', '.join(arms)}")
    return arms.index(str(value))


def _propensities(given: Any, place: int, count: int) -> list[float]:
    """Return the probability of each arm; where one alone is known, the others have equal parts of what is left."""
    if isinstance(given, list | tuple):
        return checked_shares([float(share) for share in given], place, count)
    own = float(given)
    shares = [(1.0 - own) / max(1, count - 1)] * count
    shares[place] = own
    return _possible(shares, place)


def checked_shares(shares: list[float], place: int, count: int) -> list[float]:
    """Return the probabilities of all arms.

    Raises:
        ValueError: they are none, or what was chosen could not have been.
    """
    if len(shares) != count or not abs(sum(shares) - 1.0) <= _SUM or min(shares) < 0.0:
        raise ValueError(f"the probabilities {shares} are not {count} that sum to 1")
    return _possible(shares, place)


def _possible(shares: list[float], place: int) -> list[float]:
    if not 0.0 < shares[place] <= 1.0:
        raise ValueError(f"what was chosen had the probability {shares[place]:g}: it must be in (0, 1]")
    return shares
