"""Evidence on every version that runs beside the one that serves: nobody acts on it, everybody may be told.

Comparisons begin when the version takes its place beside the one that serves, and anew each time that it has been shown
to be better: a good past must not hide a bad present.
"""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Model, Observation
    from streams.promotion.evidence import Evidence

ALPHA: Final = 0.05
# How often an application's comparisons are looked at to begin anew.
EVERY: Final = 100


class Rival(NamedTuple):
    """A version beside the one that serves.

    Attributes:
        model: name.
        version: of it.
        incumbent: the version that serves.
        share: of the model's queries that it answers; 0 = a shadow.
        since_us: when it took its place, or a share was changed before this process began.
        evidence: how it compares.
        serving: of a version that served before: how the one that serves compares with it; else None.
    """

    model: str
    version: str
    incumbent: str
    share: float
    since_us: int
    evidence: Evidence
    serving: Evidence | None


class Rivals:
    """Folds models and observations into the rivals of a deployment; O(1) for each observation."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        # By model, version and incumbent: since when, and both ways.
        self._begun: dict[tuple[str, str, str], tuple[int, VersionEvidence, VersionEvidence | None]] = {}

    def deployed(self, name: str, model: Model | None, now_us: int) -> None:
        """Take a model as it is from now on; None = it is gone."""
        wanted = set() if model is None else {(name, version, model.version) for version in model.shares}
        self._begun = {key: each for key, each in self._begun.items() if key[0] != name or key in wanted}
        for key in wanted - self._begun.keys():
            self._begun[key] = now_us, *_comparisons(key, model)
        self._models.pop(name, None)
        if model is not None:
            self._models[name] = model

    @property
    def models(self) -> dict[str, Model]:
        """The models that are deployed, by name."""
        return self._models

    def since_us(self, earliest_us: int) -> int:
        """Return since when observations count, no earlier than given; far in the future if none do."""
        return max(earliest_us, min([since_us for since_us, _, _ in self._begun.values()], default=maxsize))

    def fold_again(self) -> None:
        """Forget the observations: they come again."""
        for key, (since_us, _, _) in self._begun.items():
            self._begun[key] = since_us, *_comparisons(key, self._models[key[0]])

    def observe(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation, each once; those of a partition come in its order."""
        if not seen.versions:
            return
        for name in dict.fromkeys(loss.model for loss in seen.versions):
            model = self._models.get(name)
            for version in () if model is None else model.shares:
                since_us, *comparisons = self._begun[name, version, model.version]  # type: ignore[union-attr]
                for comparison in comparisons if timestamp_us >= since_us else ():
                    if comparison is not None:
                        comparison.take(seen, timestamp_us)

    def __iter__(self) -> Iterator[Rival]:
        """Yield them by name."""
        for key in sorted(self._begun):
            since_us, comparison, other = self._begun[key]
            share = self._models[key[0]].shares[key[1]]
            serving = None if other is None else other.evidence(ALPHA)
            yield Rival(*key, share, since_us, comparison.evidence(ALPHA), serving)


def _comparisons(key: tuple[str, str, str], model: Model | None) -> tuple[VersionEvidence, VersionEvidence | None]:
    """Return how a version is compared with the one that serves, and, if it served before, the other way round."""
    name, version, incumbent = key
    has_served = model is not None and any(service.version == version for service in model.served)
    watch = EVERY, ALPHA
    other = VersionEvidence(name, incumbent, version, watch=watch) if has_served else None
    return VersionEvidence(name, version, incumbent, watch=watch), other
