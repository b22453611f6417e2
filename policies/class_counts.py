"""How often each arm was right with each class that it answered: the state of `class_vote`.

A class is known by 53 bits of a hash, which a float holds exactly. So labels of any kind fit a flat state. Each of the
first `classes` classes has cells of its own. All further ones share one cell of each arm, so the state never
grows. It is laid out as

    hash_1 .. hash_C                                   0.0 = free
    right_all, right_rest, right_1 .. right_C          of the first arm: summed rewards (1 - loss)
    wrong_all, wrong_rest, wrong_1 .. wrong_C          of the first arm: summed losses
    ...                                                of every further arm
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from policies.light_lessons import fading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State
    from schemas.records import Value

ALL: Final = 0  # the cell of an arm's answers of any kind
_REST: Final = 1  # of the classes without a cell of their own
_FIRST: Final = 2  # of those that are
_BITS: Final = 53
_REMEMBERED: Final = 4_096  # a hash costs 1 us, a look-up 0.1


def empty(arms: int, classes: int) -> State:
    """Return the state of arms that nothing is known of."""
    return (0.0,) * (classes + arms * 2 * (_FIRST + classes))


def cells(state: State, classes: int) -> dict[float, int]:
    """Return the cell of each class that has its own, by its hash."""
    return {key: _FIRST + place for place, key in enumerate(state[:classes]) if key}


def cell(answer: Value | None, known: dict[float, int]) -> int:
    """Return the cell that an answer counts in: a label's own or that of the rest, `ALL` for everything else."""
    return known.get(key_of(answer), _REST) if isinstance(answer, int | str) else ALL


def counts(state: State, classes: int, arm: int, place: int) -> tuple[float, float]:
    """Return how often an arm was right and wrong with what is counted in a cell."""
    right = _start(classes, arm) + place
    return state[right], state[right + _FIRST + classes]


def class_count(state: State, arms: int, classes: int) -> int:
    """Return how many classes have been met, with all that share a cell counted as one; at least 2."""
    has_rest = any(any(counts(state, classes, arm, _REST)) for arm in range(arms))
    return max(2, sum(map(bool, state[:classes])) + has_rest)


def added(
    state: State,
    classes: int,
    losses: Sequence[float | None],
    answers: Sequence[Value | None] | None,
    discount: float,
    weight: float = 1.0,
) -> State:
    """Count each known loss, in the cell of what the arm answered and in that of all; `discount` is of what was there.

    Args:
        state: so far.
        classes: that have a cell of their own.
        losses: one for each arm; None = not known, which counts nowhere.
        answers: one for each arm; None = they are not known.
        discount: what the former counts of a cell are multiplied with when it is counted in.
        weight: as how much of an observation it counts, and how much of a discount it brings.
    """
    values, known, (kept, more) = list(state), cells(state, classes), fading(discount, weight)
    for arm, loss in enumerate(losses):
        if loss is None:
            continue
        answer = answers[arm] if answers else None
        if isinstance(answer, int | str) and (key := key_of(answer)) not in known and len(known) < classes:
            values[len(known)] = key
            known[key] = _FIRST + len(known)
        for place in {ALL, cell(answer, known)}:
            right = _start(classes, arm) + place
            wrong = right + _FIRST + classes
            values[right] = kept * values[right] + more - more * loss
            values[wrong] = kept * values[wrong] + more * loss
    return tuple(values)


def started(state: State, arms: int, classes: int, most: float) -> State:
    """Return the same rates believed less: no cell counts more than `most` observations; classes stay known."""
    values = list(state)
    width = _FIRST + classes
    for arm in range(arms):
        first = _start(classes, arm)
        for right in range(first, first + width):
            seen = state[right] + state[right + width]
            if seen > most:
                values[right] *= most / seen
                values[right + width] *= most / seen
    return tuple(values)


def extended(state: State, classes: int, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
    """Re-map by name; a new arm starts with one observation of the average reward of those kept, of no class."""
    known = {name: arm for arm, name in enumerate(old_arms) if name in new_arms}
    if not known:
        return empty(len(new_arms), classes)
    totals = [counts(state, classes, arm, ALL) for arm in known.values()]
    rates = [right / (right + wrong) for right, wrong in totals if right + wrong]
    fresh = [0.0] * (2 * (_FIRST + classes))
    if rates:
        fresh[ALL] = sum(rates) / len(rates)
        fresh[_FIRST + classes + ALL] = 1.0 - fresh[ALL]
    values = list(state[:classes])
    for name in new_arms:
        arm = known.get(name)
        values += fresh if arm is None else state[_start(classes, arm) : _start(classes, arm + 1)]
    return tuple(values)


def _start(classes: int, arm: int) -> int:
    """Return where an arm's counts begin."""
    return classes + arm * 2 * (_FIRST + classes)


@lru_cache(_REMEMBERED, typed=True)
def key_of(label: int | str) -> float:
    """Return a label's hash as a whole number in [1, 2^53]; 7 and "7" are different labels."""
    text = label if isinstance(label, str) else int(label)
    digest = blake2b(repr(text).encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> (64 - _BITS)) + 1)
