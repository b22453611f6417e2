"""An application's observations in the order of their log, and the predictions that still wait for feedback."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policies.combine import VOTE
from policies.loss_rules import unit_of
from schemas.errors import DecodeError
from schemas.records import Application, JoinStatus, Measurements, Observation, Observations, Prediction
from streams.evaluation.errors import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.codec import Codec
    from schemas.records import Measurement, Metric, ModelOutput
    from streams.operators.contract import Record

OBSERVATIONS: Final = "observations"
TOPICS: Final = (OBSERVATIONS, "predictions", "applications")


@dataclass(frozen=True, slots=True)
class KnownApplication:
    """What is known of one application.

    Attributes:
        application: its name.
        observations: the first of each query id, as they follow in the log.
        predicted_us: by query id, when a prediction was made that has no observation; None = predictions were not read.
        until_us: the latest moment that is known of: what was predicted long before has had its time.
        window_s: how long feedback is waited for, as the application says; None = it was not read.
        unit: of costs, as the application's loss says; empty = none was said, or it was not read.
        metrics: beside the loss, as the application says.
        measurements: what these came to, as they follow in the log; copies are among them.
        outputs: by query id, what its models have answered; None = outputs were not read, or there are none.
        loss: of the application.
        combine: how it makes one answer of several.
    """

    application: str
    observations: tuple[Observation, ...]
    predicted_us: Mapping[str, int] | None
    until_us: int
    window_s: float | None
    unit: str = ""
    metrics: tuple[Metric, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    outputs: Mapping[str, tuple[ModelOutput, ...]] | None = None
    loss: str = "zero_one"
    combine: str = VOTE

    def closed(self, window_s: float) -> tuple[Observation, ...]:
        """Return the observations of queries whose window has ended: quick feedback alone would tell of some only."""
        end_us = self.until_us - int(window_s * 1e6)
        return tuple([seen for seen in self.observations if seen.predicted_us <= end_us])


def history(
    records: Iterable[Record], codec: Codec, application: str | None, until_us: int = 0, *, with_outputs: bool = False
) -> KnownApplication:
    """Gather what the records of `TOPICS` say about an application; other topics and bytes are passed over.

    Args:
        records: in the order of each partition.
        codec: of the records.
        application: its name; None = the only one that there is.
        until_us: a moment until which everything is known, even if no record is as late.
        with_outputs: keep what models have answered, about 1 KB a query.

    Raises:
        EvaluationError: there are no observations of it, or several applications to choose from.
    """
    gathered = _Gathered(until_us, with_outputs=with_outputs)
    for record in records:
        if record.value is not None:
            gathered.take(record, codec)
    return gathered.of(application)


class _Gathered:
    """What has been read so far, of all applications."""

    def __init__(self, until_us: int, *, with_outputs: bool) -> None:
        self._observations: dict[str, dict[str, Observation]] = {}
        self._predicted_us: dict[str, dict[str, int]] = {}
        self._outputs: dict[str, dict[str, tuple[ModelOutput, ...]]] | None = {} if with_outputs else None
        self._wanted: dict[str, Application] = {}
        self._measurements: dict[str, list[Measurement]] = {}
        self._until_us = until_us
        self._topics: Counter[str] = Counter()

    def take(self, record: Record, codec: Codec) -> None:
        """Add one record."""
        assert record.value is not None
        self._until_us = max(self._until_us, record.timestamp_us)
        self._topics[record.topic] += 1
        try:
            if record.topic == OBSERVATIONS:
                several = codec.decode(Observations, record.value).items
                for measured in () if several else codec.decode(Measurements, record.value).items:
                    self._measurements.setdefault(measured.application, []).append(measured)
                for seen in several:
                    if not seen.decision.chosen:  # a lesson of a backfill: nothing was decided
                        continue
                    self._observations.setdefault(seen.application, {}).setdefault(seen.query_id, seen)
            elif record.topic == "predictions":
                made = codec.decode(Prediction, record.value)
                if made.decision is not None and made.decision.chosen:
                    self._predicted_us.setdefault(made.application, {})[made.query_id] = made.answered_us
                    if self._outputs is not None:
                        self._outputs.setdefault(made.application, {}).setdefault(made.query_id, made.outputs)
            elif record.topic == "applications":
                wanted = codec.decode(Application, record.value)
                self._wanted[wanted.name] = wanted
        except DecodeError:
            return  # a dead letter of the role that reads the topic: no decision of ours

    def of(self, application: str | None) -> KnownApplication:
        """Return one application's."""
        names = sorted(self._observations)
        if application is None and len(names) == 1:
            application = names[0]
        if application is None and names:
            raise EvaluationError(f"there are several applications: {', '.join(names)}; name one with --app")
        if application is None or application not in self._observations:
            who = "any application" if application is None else f"application {application}"
            raise EvaluationError(f"there are no observations of {who}; there are: {', '.join(names) or 'none'}")
        observed = self._observations[application]
        waiting = None
        if self._topics["predictions"]:
            made = self._predicted_us.get(application, {})
            waiting = {query_id: at for query_id, at in made.items() if query_id not in observed}
        known, outputs = self._wanted.get(application), (self._outputs or {}).get(application)
        found = KnownApplication(
            application,
            tuple(observed.values()),
            waiting,
            self._until_us,
            None,
            measurements=tuple(self._measurements.get(application, ())),
            outputs=outputs,
        )
        if known is None:
            return found
        found = replace(found, loss=known.loss, combine=known.combine, metrics=known.metrics)
        return replace(found, window_s=known.window_s, unit=unit_of(known.loss))


def seconds_late(observations: Iterable[Observation]) -> list[float]:
    """Return how long after its prediction each feedback came, in seconds."""
    return [(s.observed_us - s.predicted_us) / 1e6 for s in observations if s.status is JoinStatus.JOINED]
