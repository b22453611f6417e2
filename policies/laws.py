"""The laws of policies, each as one sentence and a function that raises where it is broken.

`skysail policy check` runs them on somebody's class, and the tests on every policy that ships. What a stranger's method
raises or returns wrongly is a `PolicyError`, which breaks the law.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from policies.contract import PLAIN, Situation
from policies.draw import uniform
from policies.errors import PolicyError
from policies.lessons import Lesson
from policies.registry import parse, spec
from schemas.records import ModelOutput, Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policies.contract import Policy, State

T = TypeVar("T")
ARMS: Final = (1, 2, 3, 5, 10)
_GRID: Final = 2_000  # draws by which the frequency of each arm is counted
_LONG: Final = 20_000  # hostile observations
_WHOLE, _PARTS, _NEAR = 20, 100, 0.05  # lessons, how many light ones each becomes, and how alike these teach
# The extremes of what an observation may hold: losses at both ends, propensities down to what a float can say.
_LOSSES: Final = (0.0, 1.0, 0.5, 1e-300, 1.0 - 2**-53, None)
_SHARES: Final = (1.0, 0.5, 0.01, 1e-9, 1e-300, 5e-324, 0.0)


class BrokenLawError(AssertionError):
    """A policy does not obey; the message says where."""


class LawVerdict(NamedTuple):
    """What became of one law; an empty fault = obeyed, None = the policy makes no claim of that kind."""

    law: str
    fault: str | None


@dataclass(frozen=True, slots=True)
class Law:
    """One law.

    Attributes:
        says: in one sentence.
        check: raises where it is broken.
        needs: the method without which it says nothing.
    """

    says: str
    check: Callable[[Policy], None]
    needs: str = ""


class _Draws:
    """Numbers that look random and are the same each time."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def random(self) -> float:
        """Return a number in [0, 1)."""
        self._drawn += 1
        return uniform(f"{self._seed}/{self._drawn}", "laws")

    def choice(self, values: Sequence[T]) -> T:
        """Return one of these."""
        return values[int(self.random() * len(values))]


def verdicts(policy: Policy) -> Iterator[LawVerdict]:
    """Yield what becomes of each law, one after the other."""
    own = getattr(policy, "policy", policy)
    for law in LAWS:
        if law.needs and not hasattr(own, law.needs):
            yield LawVerdict(law.says, None)
            continue
        try:
            law.check(policy)
        except (BrokenLawError, PolicyError) as error:
            yield LawVerdict(law.says, str(error))
        else:
            yield LawVerdict(law.says, "")


def played(policy: Policy, arms: int, steps: int, seed: int = 7) -> State:
    """Return a state after some steps of choosing and learning; arm i errs with probability (i + 1) / (arms + 1)."""
    random, state = _Draws(seed), policy.init(arms)
    for _ in range(steps):
        chosen = policy.select(state, arms, random.random())
        losses = [float(random.random() < (arm + 1) / (arms + 1)) if arm in chosen else None for arm in range(arms)]
        state = policy.observe(state, arms, Lesson(chosen, policy.propensities(state, arms), losses))
    return state


def _states(policy: Policy, arms: int) -> list[State]:
    return [policy.init(arms), *(played(policy, arms, steps) for steps in (1, 17, 200))]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenLawError(message)


def _lengths(policy: Policy) -> None:
    for arms in ARMS:
        found = {len(state) for state in _states(policy, arms)}
        _require(len(found) == 1, f"of {arms} arms it has {sorted(found)} numbers")


def _propensities(policy: Policy) -> None:
    for arms in ARMS:
        for state in _states(policy, arms):
            shares = policy.propensities(state, arms)
            _require(sum(shares) >= 1.0 - 1e-9, f"{arms} arms: {shares} sum to less than 1, so some queries ask nobody")
            least = policy.floor(arms)
            _require(min(shares) >= least - 1e-12, f"{arms} arms: {min(shares)} is below the floor of {least}")
            if policy.full_information:
                _require(set(shares) == {1.0}, f"{arms} arms: under full information all are 1.0, not {shares}")


def _frequencies(policy: Policy) -> None:
    for arms in ARMS:
        for state in _states(policy, arms):
            draws = [policy.select(state, arms, (step + 0.5) / _GRID) for step in range(_GRID)]
            asked = Counter(chain.from_iterable(draws))
            for arm, share in enumerate(policy.propensities(state, arms)):
                found = asked[arm] / _GRID
                _require(
                    abs(found - share) <= 2.0 / _GRID + 1e-9,
                    f"{arms} arms: arm {arm} is asked in {found:.2%} of all draws, where its propensity is {share:.2%}",
                )


def _ends(policy: Policy) -> None:
    for arms in ARMS:
        for state, u in product(_states(policy, arms), (0.0, 1.0 - 2**-53)):
            shares = policy.propensities(state, arms)
            for arm in policy.select(state, arms, u):
                _require(shares[arm] > 0.0, f"{arms} arms: u = {u!r} asks arm {arm}, whose propensity is 0")


def _weights(policy: Policy) -> None:
    for arms in ARMS:
        for state in _states(policy, arms):
            weights = policy.weights(state, arms)
            _require(math.isclose(sum(weights), 1.0, abs_tol=1e-9), f"{arms} arms: {weights}")


def _pure(policy: Policy) -> None:
    state, arms = played(policy, 3, 50), 3
    chosen, shares = policy.select(state, arms, 0.4), policy.propensities(state, arms)
    losses = [0.25] * arms
    first = policy.observe(state, arms, Lesson(chosen, shares, losses))
    _require(policy.observe(state, arms, Lesson(chosen, shares, losses)) == first, "observe gave another state")
    _require(policy.select(state, arms, 0.4) == chosen, "select gave other arms")
    _require(policy.propensities(state, arms) == shares, "propensities gave other numbers")
    _require(losses == [0.25] * arms, "observe changed the losses")


def _deterministic(policy: Policy) -> None:
    again = parse(spec(policy))
    for arms in (1, 3):
        _require(played(policy, arms, 300) == played(again, arms, 300), "two folds of one log differ")


def _unknown(policy: Policy) -> None:
    state = played(policy, 3, 20)
    lesson = Lesson(policy.select(state, 3, 0.5), policy.propensities(state, 3), [None] * 3)
    _require(policy.observe(state, 3, lesson) == state, "it has changed")


def _weighs(policy: Policy) -> None:
    random, arms = _Draws(11), 3
    state = policy.init(arms)
    for weight in (1e-6, 0.25, 1e-300, 1.0, 0.5) * 200:
        chosen, shares = policy.select(state, arms, random.random()), policy.propensities(state, arms)
        losses = [random.choice((0.0, 1.0, 0.5)) if arm in chosen else None for arm in range(arms)]
        state = policy.observe(state, arms, Lesson(chosen, shares, losses, weight=weight))
        _require(all(map(math.isfinite, state)), f"after a weight of {weight} it is {state}")
        policy.weights(state, arms)


def _parts(policy: Policy) -> None:
    random, arms = _Draws(13), 3
    whole = light = played(policy, arms, 200)
    for _ in range(_WHOLE):
        chosen, shares = policy.select(whole, arms, random.random()), policy.propensities(whole, arms)
        losses = [random.choice((0.0, 1.0, 0.25)) if arm in chosen else None for arm in range(arms)]
        whole = policy.observe(whole, arms, Lesson(chosen, shares, losses))
        for _ in range(_PARTS):
            light = policy.observe(light, arms, Lesson(chosen, shares, losses, weight=1.0 / _PARTS))
    found, wanted = policy.weights(light, arms), policy.weights(whole, arms)
    _require(
        _are_near(light, whole, arms) or _are_near(found, wanted, 1),
        f"{_WHOLE} lessons lead to the weights {wanted}, {_PARTS} parts of each to {found}",
    )


def _are_near(found: Sequence[float], wanted: Sequence[float], scale: float) -> bool:
    """Tell whether each number is right to a twentieth, of itself or of the scale."""
    pairs = zip(found, wanted, strict=True)
    return all(math.isclose(one, other, rel_tol=_NEAR, abs_tol=_NEAR * scale) for one, other in pairs)


def _finite(policy: Policy) -> None:
    random, arms = _Draws(3), 5
    state = policy.init(arms)
    for _ in range(_LONG):
        chosen = tuple(arm for arm in range(arms) if random.random() < 0.5) or (0,)
        shares = tuple([random.choice(_SHARES) for _ in range(arms)])
        losses = [random.choice(_LOSSES) for _ in range(arms)]
        state = policy.observe(state, arms, Lesson(chosen, shares, losses, (), tuple(range(arms))))
    policy.weights(state, arms)
    _require(bool(policy.select(state, arms, 0.5)), "it asks nobody")


def _reads_back(policy: Policy) -> None:
    again = parse(spec(policy))
    _require(again == policy and spec(again) == spec(policy), f"{spec(again)} is not {spec(policy)}")


def _named(policy: Policy) -> None:
    state = played(policy, 3, 300)
    turned = policy.extend(state, ("a", "b", "c"), ("c", "a", "b"))
    a, b, c = policy.weights(state, 3)
    found = policy.weights(turned, 3)
    _require(
        all(math.isclose(one, other, abs_tol=1e-9) for one, other in zip(found, (c, a, b), strict=True)),
        f"weights {(a, b, c)} of a, b, c became {found} of c, a, b",
    )


def _extended(policy: Policy) -> None:
    for new in (("a",), ("b", "new"), ("a", "b", "c", "x", "y"), ("x", "y")):
        arms = len(new)
        state = policy.extend(played(policy, 3, 100), ("a", "b", "c"), new)
        _require(len(state) == len(policy.init(arms)), f"for {new} it has {len(state)} numbers")
        policy.weights(state, arms)
    new_ones = policy.extend(played(policy, 3, 50), ("a", "b", "c"), ("x", "y"))
    _require(new_ones == policy.init(2), "models of which none is kept do not start anew")


def _start(policy: Policy) -> None:
    for arms in ARMS:
        for state in _states(policy, arms):
            begun = policy.start(state, arms)  # type: ignore[attr-defined]  # it has one
            _require(len(begun) == len(state), f"{arms} arms: it has {len(begun)} numbers")
            policy.propensities(begun, arms)


def _adopt(policy: Policy) -> None:
    state = played(policy, 3, 100)
    kept = policy.adopt(policy, state, 3)  # type: ignore[attr-defined]  # it has one
    if kept is not None:
        _require(len(kept) == len(state), f"it has {len(kept)} numbers instead of {len(state)}")
        policy.propensities(kept, 3)


def _combine(policy: Policy) -> None:
    answers: tuple[Mapping[int, ModelOutput], ...] = (
        {0: ModelOutput("a", "1", Outcome.OK, 7)},
        {0: ModelOutput("a", "1", Outcome.OK, "x"), 2: ModelOutput("c", "1", Outcome.MISSING, None)},
        {arm: ModelOutput("abc"[arm], "1", Outcome.OK, 0.5 * arm) for arm in range(3)},
    )
    for state, outputs in product(_states(policy, 3), answers):
        policy.combine(state, 3, outputs)  # type: ignore[attr-defined]  # it has one; `Outside` checks what it returns


def _situations(policy: Policy) -> None:
    random = _Draws(5)
    for arms, state in [(count, state) for count in ARMS for state in _states(policy, count)]:
        ask = policy.propensities_in(state, arms)  # type: ignore[attr-defined]  # it has one
        for _ in range(20):
            given = tuple(
                [
                    random.choice((0.0, -1.0, 6.0 * random.random() - 3.0, 1e6, 1e-300))
                    for _ in range(int(9 * random.random()))
                ]
            )
            shares = ask(Situation(given))
            _require(sum(shares) >= 1.0 - 1e-9, f"{shares} sum to less than 1 at features {given}")
            _require(ask(Situation(given)) == shares, "the same features gave other numbers")
        _require(ask(PLAIN) == policy.propensities(state, arms), "without features it is not as `propensities`")


def _votes(policy: Policy) -> None:
    for arms in (2, 3):
        for state in _states(policy, arms):
            weigh = policy.vote_weights(state, arms)  # type: ignore[attr-defined]  # it has one
            for answers in ({0: 7}, {0: "x", 1: None}, dict.fromkeys(range(arms), 0.5)):
                found = weigh(answers)
                _require(found.keys() == answers.keys(), f"{answers} have the weights {found}")
                _require(weigh(answers) == found, "the same answers gave other weights")


def _asks_again(policy: Policy) -> None:
    said = [ModelOutput("m", "1", Outcome.OK, 7, scores) for scores in (None, *_SCORES)]
    for arms, output in product(ARMS, said):
        for state in _states(policy, arms):
            steps = policy.steps(state, arms)  # type: ignore[attr-defined]  # it has them
            asked, first = tuple(steps.first), policy.propensities(state, arms)
            _require(
                {arm for arm, share in enumerate(first) if share} == {*asked},
                f"{arms} arms: it asks {asked} first, where propensities are {first}",
            )
            while (ask := steps.after(asked, dict.fromkeys(asked, output))) is not None:
                again = steps.after(asked, dict.fromkeys(asked, output))
                _require(again == ask, "the same answers gave another question")
                _require(not {*asked} & {*ask.arms}, f"{arms} arms: it asks {ask.arms} after {asked}")
                asked += tuple(ask.arms)


def _reads(policy: Policy) -> None:
    random, width = _Draws(11), int(getattr(policy, "items", 0) or getattr(policy, "features", 1))
    features = tuple([random.random() for _ in range(int(getattr(policy, "features", 0)))])
    for arms in (1, 3):
        for state in _states(policy, arms):
            answers = policy.reading(state, arms)  # type: ignore[attr-defined]  # it has one
            computed = {arm: _numbers([random.random() for _ in range(width)]) for arm in range(arms)}
            found = answers(computed, features, 0.4)
            _require(answers(computed, features, 0.4) == found, "the same features gave another answer")
            _require(answers({}, features, 0.4).answer is None, "it answers though no model has computed anything")
            ranked = answers.rank(_numbers([[0.5] * width, [0.25] * width]), 2, 0.4)
            if ranked is not None:
                _require(ranked.shares[ranked.best[0]] > 0.0, f"{ranked.best} stands first at no probability")


def _numbers(values: Sequence[object]) -> Tensor:
    return Tensor.of(np.array(values, np.float64))


_SCORES: Final = tuple(_numbers(scores) for scores in ([1.0, 0.0], [0.5, 0.5], [0.7, 0.3]))

LAWS: Final = (
    Law("The state's length depends on the number of arms alone.", _lengths),
    Law("Propensities are probabilities that sum to 1 at least, none below the floor.", _propensities),
    Law("Over all draws `select` asks each arm as often as its propensity says.", _frequencies),
    Law("The smallest and the largest draw ask arms that have some propensity.", _ends),
    Law("Weights sum to 1.", _weights),
    Law("Asking twice gives the same, and changes no argument.", _pure),
    Law("Two folds of one log give the same bits.", _deterministic),
    Law("Losses that are not known change nothing.", _unknown),
    Law("Lessons of any weight up to 1 leave a state that decides.", _weighs, "weighs"),
    Law("A hundred lessons of weight 1/100 teach what one of weight 1 does, to within a twentieth.", _parts, "weighs"),
    Law("The state stays finite and decides, whatever is observed.", _finite),
    Law("Its text makes it anew.", _reads_back),
    Law("Other models: what is known of a model follows its name.", _named, "extend"),
    Law("Other models: fewer, more and new ones give a state that decides.", _extended, "extend"),
    Law("A new context starts from a state that decides.", _start, "start"),
    Law("With other parameters it goes on from a state that decides.", _adopt, "adopt"),
    Law("It answers whatever models answer, with a confidence in [0, 1].", _combine, "combine"),
    Law("With features, propensities are as without: exact, and the same each time.", _situations, "propensities_in"),
    Law("By what is answered each answer has a weight, the same each time.", _votes, "vote_weights"),
    Law("It asks no arm twice, and first those that have a propensity.", _asks_again, "steps"),
    Law("Its state answers from what models compute, the same each time; from nothing, nothing.", _reads, "reading"),
)
