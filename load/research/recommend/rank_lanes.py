"""Who ranks: our policies and Vowpal Wabbit's `cb_explore_adf`, each as one that chooses among films and is taught.

Ours are called as the kernels call them, without Kafka: the state is read anew after each lesson, as Vowpal Wabbit's
weights are. Its examples are text, written beforehand; reading them is its own work.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from load.errors import PeerUnavailableError
from policies.draw import pick
from policies.lessons import Lesson
from policies.ridge import Ridge
from policies.two_speed import TwoSpeed
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]

COMMON: Final = ""  # the state of all users
_ALL_SEEN: Final = (1.0,)


class Asked(NamedTuple):
    """Which films there are to choose among, for whom."""

    user: int
    traits: Floats  # (m,) what is known of the user
    films: NDArray[np.int64]  # (n,) numbers
    rows: Floats  # (n, k) features of these
    lines: Sequence[str] = ()  # the same as Vowpal Wabbit reads it: the user, then each film


class Shown(NamedTuple):
    """Places of the films that are shown, the best first, and the probability of each film to stand first."""

    best: tuple[int, ...]
    shares: Sequence[float]


class Ranker(Protocol):
    """Somebody who ranks, and is told what became of it."""

    def show(self, asked: Asked, top: int, u: float) -> Shown:
        """Return the best films; the first is drawn."""
        ...

    def learn(self, asked: Asked, shown: Shown, clicks: Sequence[float]) -> None:
        """Take whether each of the first places was clicked on."""
        ...


class Regressions:
    """Our policy `ridge`: one state for all, or one for each user that starts from that of all.

    Args:
        features: of a film.
        per_user: whether each user has a state.
        examination: what it believes of the places; one = only the first place teaches.
    """

    def __init__(self, features: int, *, per_user: bool, examination: Sequence[float] = _ALL_SEEN) -> None:
        self._policy = Ridge(features=features, low=0.0, high=1.0)
        self._states: dict[str, State] = {COMMON: self._policy.init(1)}
        self._per_user, self._examination = per_user, examination

    def show(self, asked: Asked, top: int, u: float) -> Shown:
        """Return the best by the user's regression."""
        found = self._policy.reading(self._state(asked.user), 1).rank(Tensor.of(asked.rows), top, u)
        assert found is not None
        return Shown(found.best, found.shares)

    def learn(self, asked: Asked, shown: Shown, clicks: Sequence[float]) -> None:
        """Teach the user's state, and that of all."""
        lessons = [
            Lesson((0,), (1.0,), (None,), scores=(Tensor.of(asked.rows[place]),), label=click, examined=examined)
            for place, click, examined in zip(shown.best, clicks, self._examination, strict=False)
        ]
        names = {COMMON: self._states[COMMON]}
        if self._per_user:
            names[str(asked.user)] = self._state(asked.user)
        for name, begun in names.items():
            self._states[name] = reduce(lambda state, lesson: self._policy.observe(state, 1, lesson), lessons, begun)

    def _state(self, user: int) -> State:
        own = self._states.get(str(user)) if self._per_user else self._states[COMMON]
        return self._policy.start(self._states[COMMON], 1) if own is None else own


class Items:
    """Our policy `two_speed` by feedback alone: each film has weights for what is known of users."""

    def __init__(self, films: int, features: int) -> None:
        self._policy = TwoSpeed(features=features, items=films)
        self._state, self._cold = self._policy.init(1), Tensor.of(np.zeros(films))

    def show(self, asked: Asked, top: int, u: float) -> Shown:
        """Return the film that is drawn, then those of which most is expected."""
        read, traits = self._policy.reading(self._state, 1), tuple(asked.traits.tolist())
        reading, best = read.among(asked.films.tolist(), {0: self._cold}, traits, top, u)
        return Shown(best, reading.first)

    def learn(self, asked: Asked, shown: Shown, clicks: Sequence[float]) -> None:
        """Teach the film that stood first."""
        film, traits = int(asked.films[shown.best[0]]), tuple(asked.traits.tolist())
        lesson = Lesson((0,), (1.0,), (1.0 - clicks[0],), traits, answers=(film,), scores=(self._cold,))
        self._state = self._policy.observe(self._state, 1, lesson)


class VowpalWabbit:
    """`cb_explore_adf` of Vowpal Wabbit, with its defaults but what is given.

    Args:
        options: of its command line.

    Raises:
        PeerUnavailableError: it is not installed.
    """

    def __init__(self, options: str) -> None:
        try:
            library: Any = import_module("vowpalwabbit")
        except ImportError as error:
            raise PeerUnavailableError("Vowpal Wabbit is not installed: pip install vowpalwabbit==9.11.9") from error
        self._workspace = library.Workspace(f"--cb_explore_adf --quiet --random_seed 1 {options}")

    def show(self, asked: Asked, top: int, u: float) -> Shown:
        """Return the film that is drawn with its probabilities."""
        shares = self.shares(asked.lines)
        total = sum(shares)
        return Shown((pick(tuple([share / total for share in shares]), u),), shares)

    def learn(self, asked: Asked, shown: Shown, clicks: Sequence[float]) -> None:
        """Take the cost of the film that stood first, with the probability that it did."""
        self.teach(asked.lines, shown.best[0], 1.0 - clicks[0], shown.shares[shown.best[0]])

    def shares(self, lines: Sequence[str]) -> Sequence[float]:
        """Return how likely each action is chosen."""
        found: Sequence[float] = self._workspace.predict(list(lines))
        return found

    def teach(self, lines: Sequence[str], place: int, loss: float, share: float) -> None:
        """Take what one action has cost."""
        told = list(lines)
        told[place + 1] = f"0:{loss}:{share} {told[place + 1]}"
        self._workspace.learn(told)
