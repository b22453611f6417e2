"""Ratings of films as MovieLens has them, but made up: users, films, ratings from 1 to 5, and features of the films.

    rating = 3.5 + kindness of the user + quality of the film + taste of the user . traits of the film + noise

The features of a film that the models compute are not its traits: they are trained on ratings of other users, as a
matrix factorisation that is filled up with the films' means. `few` is trained on few of these, `many` on all.
Everything follows from one seed. Packaged by dotted path (`load.research.models.movies:few`): a worker needs no file.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST, MEAN, MOST = 1.0, 3.5, 5.0
FILMS, FEATURES = 400, 8
NOISE = 0.4  # standard deviation of a rating beside what makes it
_SEED, _TRAITS = 15, 5
_KINDNESS, _QUALITY, _TASTE = 0.35, 0.45, 0.7
OTHERS, _FEW = 3_000, 150  # users whose ratings train the features
_RATED = 0.2  # part of the films that each of these has rated


class Films(NamedTuple):
    """Quality (films,) and traits (films, traits), whose rows have a length of about 1."""

    quality: NDArray[np.float64]
    traits: NDArray[np.float64]


class Users(NamedTuple):
    """Kindness (n,) and taste (n, traits)."""

    kindness: NDArray[np.float64]
    taste: NDArray[np.float64]


@cache
def films() -> Films:
    """Return the films, always the same."""
    random = np.random.default_rng(_SEED)
    return Films(random.normal(0, _QUALITY, FILMS), random.normal(0, _TRAITS**-0.5, (FILMS, _TRAITS)))


def users(count: int, seed: int) -> Users:
    """Draw users; on the average they like the first trait."""
    random = np.random.default_rng((_SEED, seed))
    taste = random.normal(0, _TASTE, (count, _TRAITS))
    taste[:, 0] += _TASTE
    return Users(random.normal(0, _KINDNESS, count), taste)


def ratings(who: Users, number: NDArray[np.int64], film: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return the ratings (n,) that users, by number, give to films."""
    known, random = films(), np.random.default_rng((_SEED, seed, 1))
    liked = (who.taste[number] * known.traits[film]).sum(axis=1)
    drawn = MEAN + who.kindness[number] + known.quality[film] + liked + random.normal(0, NOISE, len(film))
    return np.asarray(np.clip(drawn, LEAST, MOST))


@cache
def computed(others: int) -> NDArray[np.float32]:
    """Return the features (films, 8), trained on so many users: the mean rating, and seven factors about 1 long."""
    who = users(others, seed=-1 & 0xFFFF)
    number, film = np.divmod(np.arange(others * FILMS), FILMS)
    given = ratings(who, number, film, seed=2).reshape(others, FILMS)
    is_rated = np.random.default_rng((_SEED, 3)).random(given.shape) < _RATED
    means = (given * is_rated).sum(axis=0) / np.maximum(is_rated.sum(axis=0), 1)
    kind = ((given - means) * is_rated).sum(axis=1) / np.maximum(is_rated.sum(axis=1), 1)
    left = np.where(is_rated, given - means - kind[:, None], 0.0)
    _, _, factors = np.linalg.svd(left, full_matrices=False)
    kept = factors[: FEATURES - 1]
    signs = np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(axis=1)])  # else they depend on the processor
    scaled = (kept * signs[:, None]).T * np.sqrt(FILMS / (FEATURES - 1))
    return np.column_stack([means - MEAN, scaled]).astype(np.float32)


def few(rows: NDArray[np.int32]) -> NDArray[np.float32]:
    """Compute the features of films; `rows` (n, 1) are their numbers."""
    return computed(_FEW)[rows[:, 0]]


def many(rows: NDArray[np.int32]) -> NDArray[np.float32]:
    """Compute the features that were trained on twenty times as many users."""
    return computed(OTHERS)[rows[:, 0]]
