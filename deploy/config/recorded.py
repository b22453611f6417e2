"""What a recorded trace tells a plan: when queries were sent, and what became of them."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from deploy.config.configuration import masked
from deploy.errors import SettingsError
from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import ModelPredictions, Prediction, Query
from schemas.sizes import MOST_BYTES
from streams.trace.manifest import TraceError, TraceManifest
from streams.trace.reader import Trace
from workers.simulation.calibration import Answer, Stamped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeVar

    from deploy.config.settings import Settings
    from streams.operators.contract import Record

    R = TypeVar("R", Query, Prediction, ModelPredictions)


def sent_us(folder: Path) -> Iterator[int]:
    """Yield when the queries of a trace were sent (us).

    Raises:
        SettingsError: there is no trace, it is damaged, or it holds no queries.
    """
    for query, record in _decoded(folder, topics.QUERIES, Query):
        yield query.sent_us or record.timestamp_us


def logged(folder: Path) -> tuple[list[Answer], list[Stamped]]:
    """Return the predictions and batches of a trace.

    Raises:
        SettingsError: there is no trace, it is damaged, or it lacks these topics.
    """
    answers = [Answer(prediction) for prediction, _ in _decoded(folder, topics.PREDICTIONS, Prediction)]
    batches = _decoded(folder, topics.MODEL_PREDICTIONS, ModelPredictions)
    return answers, [Stamped(batch, record.timestamp_us) for batch, record in batches]


def _decoded(folder: Path, topic: str, kind: type[R]) -> Iterator[tuple[R, Record]]:
    """Yield a topic's records; what does not decode is left out, as a role leaves it out."""
    codec = Codec(max_bytes=MOST_BYTES)  # whatever the deployment took
    try:
        for record in Trace.open(folder).records(topic):
            try:
                yield codec.decode(kind, record.value), record
            except DecodeError:
                continue
    except TraceError as error:
        raise SettingsError(str(error)) from error


def about(settings: Settings) -> TraceManifest:
    """Return the manifest of a new trace of this deployment."""
    return TraceManifest(settings.prefix, metadata.version("skysail"), masked(settings))
