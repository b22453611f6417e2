"""Reads what a stretch of load has written to the topics: records and bytes, and the times that records carry."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.harness.wire import Wire
from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelPredictions, Prediction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from load.harness.system import Stage
    from load.harness.wire import Arrival
    from load.research.account.profile import Window

# Records carry whole milliseconds: what is rounded down is half of one too small on average.
_HALF_MS_US = 500
LEGS: Final = {
    "client_to_selection": "client → selection",
    "selection_to_worker": "selection → worker, with selecting",
    "queue": "in the worker's queue",
    "predict": "in the worker's batch",
    "worker_to_selection": "worker → selection, with combining",
    "selection_to_client": "selection → client",
}


class Way(NamedTuple):
    """When one query was where, us since the epoch."""

    sent_us: int
    received_us: int
    fetched_us: int  # by the worker
    started_us: int  # its batch
    predicted_us: int
    answered_us: int
    read_us: int  # by the client


@dataclass(slots=True)
class Volume:
    """Records of one topic, their keys and values in bytes."""

    records: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Traffic:
    """The records written in one window.

    Attributes:
        volumes: by topic.
        rows: that each model's worker has answered.
        batches: in which it did; a batch's rows may be spread over several records.
        worked: by query id, when the worker had fetched it, began its batch and wrote the prediction (us).
        answered: by query id, when it was received and answered (us).
    """

    volumes: dict[str, Volume] = field(default_factory=lambda: defaultdict(Volume))
    rows: Counter[str] = field(default_factory=Counter)
    batches: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    worked: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    answered: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, arrived: Arrival, codec: Codec) -> None:
        """Count a record, and note its times."""
        volume = self.volumes[arrived.topic]
        volume.records += 1
        volume.size_bytes += len(arrived.key or b"") + len(arrived.value or b"")
        if arrived.topic == topics.MODEL_PREDICTIONS:
            self._on_batch(codec.decode(ModelPredictions, arrived.value), arrived.timestamp_us + _HALF_MS_US)
        elif arrived.topic == topics.PREDICTIONS:
            answer = codec.decode(Prediction, arrived.value)
            self.answered[answer.query_id] = answer.sent_us, answer.received_us, answer.answered_us

    def ways(self, read_us: Mapping[str, int]) -> list[Way]:
        """Return the ways of the queries that have gone all of it.

        Args:
            read_us: by query id, when the client had the answer.
        """
        return [
            Way(*self.answered[name][:2], *self.worked[name], self.answered[name][2], at_us)
            for name, at_us in read_us.items()
            if name in self.answered and name in self.worked
        ]

    def _on_batch(self, batch: ModelPredictions, written_us: int) -> None:
        self.rows[batch.model] += len(batch.query_ids)
        self.batches[batch.model] += len(batch.query_ids) / max(1, batch.batch_rows)
        started_us = written_us - batch.predict_us
        for name, waited_us in zip(batch.query_ids, batch.waited_us, strict=True):
            self.worked[name] = started_us - waited_us, started_us, written_us


def read(stage: Stage, prefix: str, models: Iterable[str], windows: Mapping[str, Window]) -> dict[str, Traffic]:
    """Read a deployment's topics from their start; returns by window what was written in it."""
    circle = (topics.QUERIES, topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
    found, codec = {name: Traffic() for name in windows}, Codec()
    with closing(Wire(stage.bootstrap, prefix, stage.properties)) as wire:
        wire.follow((*circle, *map(topics.model_queries, models)), from_start=True)
        for record in wire.written():
            for name in (name for name, window in windows.items() if record.timestamp_us in window):
                found[name].add(record, codec)
    return found


def legs_ms(ways: Sequence[Way]) -> dict[str, tuple[float, float]]:
    """Return the median and the 99th percentile (ms) by the names of `LEGS`; empty without a way."""
    if not ways:
        return {}
    points = np.percentile(np.diff(np.array(ways), axis=1), (50, 99), axis=0) / 1e3
    return {leg: (float(p50), float(p99)) for leg, p50, p99 in zip(LEGS, *points, strict=True)}
