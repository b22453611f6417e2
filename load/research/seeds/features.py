"""Features as they are stored, and their store: it has nothing, nonsense, or is late, and the answer must say so."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import Features
from streams.operators.configuration import CANDIDATE
from streams.runtime.errors import StoreUnavailableError
from streams.testing.stores import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from schemas.codec import Codec
    from schemas.records import Prediction, Source
    from streams.testing.stores import StoreWeather

FILMS: Final = tuple([f"film-{number}" for number in range(12)])
ITEMS: Final = ("0", "1", "nobody's")  # two that a model knows, and one that it does not
# Of 256 keys so many have nothing, bytes that are no features, too many numbers, and a number at the end of a double.
_NOTHING, _NONSENSE, _WIDE, _HUGE = 24, 40, 56, 72
_LATE = 0.1  # of the reads
_LATE_S = (0.02, 1.0)


def stored(source: Source, key: str) -> tuple[float, ...] | None:
    """Return the features that a source has under a key; None = none that can be used."""
    first, *others = _drawn(source.name, key)
    if first < _WIDE:
        return None
    numbers = tuple([number / 256 for number in others[: source.width]])
    return (1e308, *numbers[1:]) if first < _HUGE else numbers


def written(source: Source, key: str, codec: Codec) -> bytes | None:
    """Return the bytes that stand under a key."""
    first = _drawn(source.name, key)[0]
    if first < _NOTHING:
        return None
    if first < _NONSENSE:
        return b"nonsense"
    return codec.encode(Features(stored(source, key) or (0.5,) * (source.width + 1)))


def untrue(prediction: Prediction, sources: Sequence[Source]) -> Iterator[str]:
    """Yield what is neither as it is stored nor named as imputed, of the features that an answer was made by."""
    features = () if prediction.decision is None else prediction.decision.features
    at = 0
    for source in sources:
        if source.key != CANDIDATE:
            key = prediction.query_id if source.key == "query_id" else prediction.context
            known = None if key is None else stored(source, key)
            if source.name not in prediction.imputed and features[at : at + source.width] != known:
                yield f"{source.name} of {key} is {features}, stored is {known}"
            at += source.width
    yield from _untrue_rows(prediction, [source for source in sources if source.key == CANDIDATE])


def _untrue_rows(prediction: Prediction, sources: Sequence[Source]) -> Iterator[str]:
    ranked = prediction.ranked
    if ranked is None or ranked.rows is None:
        return
    for one, row in zip(ranked.ids, ranked.rows.numpy().tolist(), strict=True):
        found = [stored(source, one) for source in sources]
        known = None if None in found else [number for each in found for number in each or ()]
        if one not in ranked.imputed and row != known:
            yield f"{one} is {row}, stored is {known}"


class SimulatedFeatures:
    """Implements `FeatureStore` for one process.

    Args:
        sources: that it has keys of.
        codec: of the features.
        weather: of the stores.
        random: draws how long reads take.
        is_dead: whether the process was killed.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        codec: Codec,
        weather: StoreWeather,
        random: Random,
        is_dead: Callable[[], bool],
    ) -> None:
        self._sources = {source.name: source for source in sources}
        self._codec = codec
        self._weather = weather
        self._random = random
        self._is_dead = is_dead

    async def features(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Read keys; see `stores.base.FeatureStore`."""
        weather, random = self._weather, self._random
        if self._is_dead():
            raise StoreUnavailableError("the process was killed")
        if weather.away or random.random() < weather.lossy:
            await asyncio.sleep(TIMEOUT_S)
            raise StoreUnavailableError("the store did not answer")
        is_late = random.random() < _LATE
        await asyncio.sleep(random.uniform(*(_LATE_S if is_late else weather.leg_s)))
        return [self._read(key) for key in keys]

    async def close(self) -> None:
        """Do nothing: the others still use it."""

    def _read(self, key: str) -> bytes | None:
        name, _, rest = key.partition("/")
        source = self._sources.get(name)
        return None if source is None else written(source, rest, self._codec)


def _drawn(source: str, key: str) -> bytes:
    """Return numbers that belong to a key for good."""
    return blake2b(topics.feature_key(source, key).encode(), digest_size=8).digest()
