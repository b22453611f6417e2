"""What a policy from outside says of one query is checked before anybody goes by it; a fault is a `PolicyError`.

    vote_weights ─▶ votes        steps ─▶ GuardedSteps        reading ─▶ GuardedRead, GuardedChoose

A stranger's values may be of any class: each is read once, and what is kept of it is plain.
"""

from __future__ import annotations

from math import isfinite
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policies.contract import Ask, Ranking, Reading
from policies.errors import PolicyError
from policies.foreign import pass_on_interrupt, told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.contract import VoteWeights
    from schemas.records import ModelOutput, Tensor, Value

T = TypeVar("T")
_MOST_SHOWN: Final = 100  # characters of a value in a message
_ROUNDED: Final = 1e-9  # of probabilities


def called(what: str, function: Callable[..., Any], *given: object) -> Any:
    """Return what a stranger's function returns.

    Raises:
        PolicyError: it raises whatever it raises; `what` names it.
    """
    try:
        return function(*given)
    except PolicyError:
        raise
    except BaseException as error:  # whatever a stranger's code does
        pass_on_interrupt(error)
        raise PolicyError(f"{what} fails: {told(error)}") from error


def read(what: str, found: object, should: str, make: Callable[[Any], T]) -> T:
    """Return a plain value made of a stranger's.

    Raises:
        PolicyError: it cannot be made; `should` says what is returned there.
    """
    try:
        return make(found)
    except BaseException as error:  # noqa: BLE001 - whatever a stranger's values do when they are read
        pass_on_interrupt(error)
        raise PolicyError(f"{what} returned {short(found)}; it is {should}") from None


def shares_of(what: str, values: object, arms: int) -> tuple[float, ...]:
    """Return probabilities, one for each arm.

    Raises:
        PolicyError: they are none.
    """
    shares = read(what, values, "one number for each arm", lambda found: tuple([float(value) for value in found]))
    if len(shares) != arms or not all(0.0 <= share <= 1.0 + _ROUNDED for share in shares):
        raise PolicyError(f"{what} returned {short(values)}; it is {arms} numbers in [0, 1]")
    return tuple([min(share, 1.0) for share in shares])


def short(value: object) -> str:
    """Return a value for a message."""
    try:
        text = f"{value!r}"
    except BaseException as error:  # noqa: BLE001 - a stranger's `__repr__`
        text = f"{type(value).__name__} ({told(error)})"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def votes(what: str, own: Callable[..., Any]) -> VoteWeights:
    """Return weights by answer: one for each arm that is given, none negative, not all 0."""

    def weigh(answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        found = called(what, own, dict(answers))
        kept = read(what, found, "a number by arm", lambda by_arm: {arm: float(by_arm[arm]) for arm in answers})
        if not all(isfinite(weight) and weight >= 0.0 for weight in kept.values()) or not sum(kept.values()) > 0.0:
            raise PolicyError(f"{what} returned {short(found)}; weights are not negative, and not all 0")
        return kept

    return weigh


class GuardedSteps:
    """What a policy from outside asks about one query, question after question, in one state.

    Args:
        what: whose it is.
        own: that it returned.
        arms: how many there are.

    Raises:
        PolicyError: it has no `first` that can be asked.
    """

    __slots__ = ("_arms", "_own", "_votes", "_what", "first")

    def __init__(self, what: str, own: Any, arms: int) -> None:
        self._what, self._own, self._arms = what, own, arms
        self.first: tuple[int, ...] = self._asked("first", called(f"{what}.first", lambda: own.first), ())
        self._votes = votes(f"{what}.votes", called(f"{what}.votes", lambda: own.votes))

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return what may be asked next: arms that have not been asked; None = everything has been."""
        what = f"{self._what}.after"
        found = called(what, lambda: self._own.after(asked, dict(outputs)))
        if found is None:
            return None
        given = read(
            what, found, "None or an `Ask`", lambda ask: Ask(ask[0], float(ask[1]), float(ask[2]), float(ask[3]))
        )
        ask = given._replace(arms=self._asked("after", given.arms, asked))
        if not 0.0 <= ask.probability <= 1.0 or not 0.0 <= ask.confidence <= 1.0 or not isfinite(ask.threshold):
            raise PolicyError(f"{what} returned {short(found)}; probability and confidence lie in [0, 1]")
        return ask

    def chance(self, question: int, confidence: float) -> float:
        """Return how likely a question is, counted from 0, after answers of that confidence."""
        what = f"{self._what}.chance"
        return _unit(what, called(what, lambda: self._own.chance(question, confidence)))

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return how much each asked arm's answer counts."""
        return self._votes(answers)

    def confidence(self, outputs: Mapping[int, ModelOutput]) -> float | None:
        """Return the confidence of the answer made of these outputs; None = it is not known, or it does not say."""
        if not hasattr(self._own, "confidence"):
            return None
        what = f"{self._what}.confidence"
        found = called(what, lambda: self._own.confidence(dict(outputs)))
        return None if found is None else _unit(what, found)

    def _asked(self, method: str, values: object, before: tuple[int, ...]) -> tuple[int, ...]:
        what = f"{self._what}.{method}"
        arms = read(what, values, "arms", lambda found: tuple([int(arm) for arm in found]))
        if not arms or not all(0 <= arm < self._arms for arm in arms) or len({*before, *arms}) < len(before + arms):
            raise PolicyError(
                f"{what} is {short(values)}; it is at least one of 0 to {self._arms - 1}, none asked before"
            )
        return arms


class GuardedRead:
    """A state of a policy from outside that answers.

    Args:
        what: whose it is.
        own: that it returned.
        arms: how many there are.
    """

    __slots__ = ("_arms", "_own", "_what")

    def __init__(self, what: str, own: Any, arms: int) -> None:
        self._what, self._own, self._arms = what, own, arms

    def __call__(self, computed: Mapping[int, Tensor], features: tuple[float, ...] = (), u: float = 0.0) -> Reading:
        """Return the answer to a query."""
        return self._reading(called(self._what, self._own, dict(computed), features, u))

    def rank(self, candidates: Tensor, top: int, u: float) -> Ranking | None:
        """Return the best of some candidates; None if they are no features of the policy, or it does not rank."""
        if not hasattr(self._own, "rank"):
            return None
        what, count = f"{self._what}.rank", int(candidates.shape[0]) if candidates.shape else 0
        found = called(what, lambda: self._own.rank(candidates, top, u))
        if found is None:
            return None
        best, shares, answer, confidence = read(
            what, found, "None or a `Ranking`", lambda ranking: (ranking[0], ranking[1], ranking[2], ranking[3])
        )
        places = self._best(what, best, count, top)
        drawn = shares_of(what, shares, count)
        if abs(sum(drawn) - 1.0) > _ROUNDED * max(1, count) or drawn[places[0]] <= 0.0:
            raise PolicyError(f"{what} returned shares {short(shares)}; they sum to 1, and the first has one")
        return Ranking(places, drawn, _number(what, answer), _unit(what, confidence))

    def _best(self, what: str, values: object, count: int, top: int) -> tuple[int, ...]:
        places = read(what, values, "places", lambda found: tuple([int(place) for place in found]))
        if not 1 <= len(places) <= top or len({*places}) < len(places) or not all(0 <= at < count for at in places):
            raise PolicyError(f"{what} returned {short(values)}; it is 1 to {top} places of {count}, each once")
        return places

    def _reading(self, found: object) -> Reading:
        answer, confidence, by_arm, first = read(self._what, found, "a `Reading`", _parts)
        if not all(0 <= arm < self._arms and isfinite(one) for arm, one in by_arm.items()):
            raise PolicyError(f"{self._what} returned {short(found)}; its answers are finite numbers by arm")
        return Reading(
            None if answer is None else _number(self._what, answer),
            _unit(self._what, confidence),
            by_arm,
            shares_of(self._what, first, len(first)),
        )


class GuardedChoose(GuardedRead):
    """One that chooses among items, or among some of them."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """How many items there are."""
        what = f"{self._what}.count"
        return read(what, called(what, lambda: self._own.count), "a number of items", int)

    def among(
        self, items: Sequence[int], computed: Mapping[int, Tensor], features: tuple[float, ...], top: int, u: float
    ) -> tuple[Reading, tuple[int, ...]]:
        """Return the answer, whose `first` is that of each of these items, and the best ones as places in `items`."""
        what = f"{self._what}.among"
        found = called(what, lambda: self._own.among(items, dict(computed), features, top, u))
        made, best = read(what, found, "a `Reading` and places", lambda pair: (pair[0], tuple(pair[1])))
        reading = self._reading(made)
        if not best:
            return reading, ()
        if len(reading.first) != len(items):
            raise PolicyError(f"{what} returned {len(reading.first)} shares for {len(items)} items")
        return reading, self._best(what, best, len(items), top)


def reading(what: str, own: Any, arms: int) -> GuardedRead:
    """Return what answers, checked."""
    return (GuardedChoose if hasattr(own, "among") else GuardedRead)(what, own, arms)


def _parts(made: Any) -> tuple[Any, Any, dict[int, float], tuple[Any, ...]]:
    answers = {int(arm): _finite(answer) for arm, answer in made[2].items()}
    return made[0], made[1], answers, tuple(made[3]) if len(made) > 3 else ()


def _finite(number: Any) -> float:
    if not isfinite(number):  # of an int without end it is an OverflowError
        raise ValueError
    return int(number) if isinstance(number, Integral) else float(number)


def _number(what: str, value: object) -> float:
    return read(what, value, "a finite number", _finite)


def _unit(what: str, value: object) -> float:
    found = read(what, value, "a number", float)
    if not 0.0 <= found <= 1.0:
        raise PolicyError(f"{what} returned {short(value)}; it lies in [0, 1]")
    return found
