"""How the versions of a model have fared, by observations: what each cost, and how two of them compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.errors import UsageError
from deploy.state.evidence import fold
from deploy.state.read_log import ReadLog
from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from deploy.process.progress import Progress
    from schemas.codec import Codec
    from schemas.records import Model, Observation
    from streams.promotion.evidence import Evidence

DAY_US: Final = 86_400_000_000
# Records of observations that are read, the newest: some seconds, as somebody waits for a version to go.
MOST: Final = 50_000
ALPHA: Final = 0.05


class ServedLosses(NamedTuple):
    """What a version's answers cost: their number, and the sums of weight times loss (in [0, 1]) and of weight."""

    answers: int = 0
    loss: float = 0.0
    weight: float = 0.0

    @property
    def mean(self) -> float | None:
        """Their mean; None = nothing is known."""
        return self.loss / self.weight if self.weight else None


class Fared:
    """Folds observations into what the versions of a model cost, and into how two of them compare.

    Observations name versions only while a model runs in several. Else the history of what served tells whose answer
    it was.

    Args:
        serving: the record of the version that serves.
        version: that it is compared with.
    """

    def __init__(self, serving: Model, version: str) -> None:
        self._model = serving.name
        self._times = [*serving.served, (serving.version, serving.since_us, 0)]
        self._comparison = VersionEvidence(serving.name, version, serving.version)
        self.losses: dict[str, ServedLosses] = {}

    @property
    def evidence(self) -> Evidence:
        """How the version compares with the one that serves."""
        return self._comparison.evidence(ALPHA)

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation."""
        self._comparison.take(seen, timestamp_us)
        told = {version: loss for model, version, loss in seen.versions if model == self._model}
        if not told and self._model in seen.decision.arms and len(seen.losses) == len(seen.decision.arms):
            loss = seen.losses[seen.decision.arms.index(self._model)]
            version = self._served_at(seen.predicted_us)
            told = {} if loss is None or not version else {version: loss}
        part = 1.0 if seen.weight is None else seen.weight
        for version, loss in told.items():
            answers, total, parts = self.losses.get(version, ServedLosses())
            self.losses[version] = ServedLosses(answers + 1, total + part * loss, parts + part)

    def until(self, now_us: int) -> None:
        """Count whose hour has ended by a time (`persons`)."""
        self._comparison.until(now_us)

    def _served_at(self, time_us: int) -> str:
        """Return the version that served at a time; empty = it is not known."""
        for version, since_us, until_us in self._times:
            if since_us and since_us <= time_us and (not until_us or time_us < until_us):
                return version
        return ""


def fared(settings: Settings, codec: Codec, serving: Model, version: str, progress: Progress) -> Fared:
    """Return how the version that serves and another one have fared in the last day, as far as is quickly read.

    Raises:
        Unreachable: no broker answers.
    """
    found = Fared(serving, version)
    try:
        log = ReadLog(settings, codec)
        fold(log, found.take, log.end_us - DAY_US, progress, MOST)
        found.until(log.end_us)
    except UsageError:  # there is no topic of observations
        return Fared(serving, version)
    return found
