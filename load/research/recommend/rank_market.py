"""A market of films where the truth is known: who clicks on which, at which place, follows from a seed.

The films, their features and the users' tastes are those of `load.research.models.movies`, which MovieLens' ratings
resemble. A user who looks at a film clicks with a chance by its quality and his taste. Of a user is known what his
taste is, with as much noise. Each place of a ranking is looked at with a probability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.research.models import movies
from load.research.recommend.rank_lanes import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

USERS: Final = 100
CANDIDATES: Final = 20
PLACES: Final = (1.0, 0.5, 0.25)  # probability that each is looked at
_LEVEL, _SLOPE = -1.5, 1.5  # log-odds of a click on a film of the mean, and by a point of its rating
_SEED: Final = 49


class Visit(NamedTuple):
    """A query, and what would become of each of its candidates."""

    asked: Asked
    chances: Floats  # (n,) of a click, by who looks
    draw: float  # of the ranker
    looks: Floats  # (places,) a place is looked at if this is below its probability
    likes: Floats  # (n,) a film that is looked at is clicked on if this is below its chance

    def clicks(self, best: Sequence[int]) -> tuple[float, ...]:
        """Return whether each place is clicked on."""
        return tuple(
            [
                float(look < seen and self.likes[film] < self.chances[film])
                for film, look, seen in zip(best, self.looks, PLACES, strict=False)
            ]
        )

    def worth(self, best: Sequence[int]) -> float:
        """Return how many clicks a ranking earns in expectation."""
        return float(sum(seen * self.chances[film] for film, seen in zip(best, PLACES, strict=False)))

    def ideal(self, top: int) -> tuple[int, ...]:
        """Return the ranking of whoever knows the truth."""
        return tuple(np.argsort(-self.chances, kind="stable")[:top].tolist())


def visits(count: int, seed: int) -> Iterator[Visit]:
    """Yield so many queries."""
    random, who, films = np.random.default_rng((_SEED, seed)), movies.users(USERS, seed), movies.films()
    features = movies.computed(movies.OTHERS).astype(np.float64)
    known = who.taste + random.normal(0.0, who.taste.std(), who.taste.shape)
    log_odds = _LEVEL + _SLOPE * (films.quality + who.taste @ films.traits.T)
    chances = 1.0 / (1.0 + np.exp(-log_odds))
    said = [_named("F", row) for row in features]
    for _ in range(count):
        user, films_ = int(random.integers(USERS)), random.choice(movies.FILMS, CANDIDATES, replace=False)
        lines = [f"shared {_named('U', known[user])} |I u{user}", *[f"{said[film]} |N f{film}" for film in films_]]
        asked = Asked(user, known[user], films_, features[films_], lines)
        likes = random.random(CANDIDATES)
        yield Visit(asked, chances[user, films_], float(random.random()), random.random(len(PLACES)), likes)


def _named(space: str, row: Floats) -> str:
    """Return features as Vowpal Wabbit reads them."""
    return f"|{space} " + " ".join(f"{number}:{value:.5g}" for number, value in enumerate(row))
