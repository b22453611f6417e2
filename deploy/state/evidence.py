"""What the observations of a deployment say about a candidate, read to their present end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from deploy.process.progress import Silent
from deploy.state.read_log import ReadLog
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observations
from streams.promotion.copies import Copies
from streams.promotion.lifecycle import comparison
from streams.promotion.measurements import ComparableMeasurements, is_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deploy.config.settings import Settings
    from deploy.process.progress import Progress
    from schemas.codec import Codec
    from schemas.records import Candidate, Measurement, Observation
    from streams.operators.contract import Record
    from streams.promotion.evidence import Comparison
    from streams.promotion.hindrance import Heard

_TOLD = 1_000  # observations between two words on the progress


def compared(
    settings: Settings,
    codec: Codec,
    plan: Candidate,
    application: str = "",
    *,
    learns_along: bool,
    progress: Progress | None = None,
    heard: Heard | None = None,
) -> Comparison:
    """Fold the observations since a candidate's `since_us` into its comparison with the incumbent.

    Args:
        settings: of the deployment.
        codec: of its records.
        plan: of the candidate.
        application: whose observations count; empty = of all.
        learns_along: of a policy: whether it is the application's apprentice.
        progress: is told how far it is: a day of observations takes seconds.
        heard: counts what they have to compare it by.

    Raises:
        PolicyError: it is a policy that cannot be compared.
        UsageError: there is no topic of observations.
        Unreachable: no broker answers.
    """
    log = ReadLog(settings, codec)
    found = comparison(plan, log.window.memory_us, application, learns_along=learns_along)

    def take(seen: Observation, timestamp_us: int) -> None:
        found.take(seen, timestamp_us)
        if heard is not None and application in ("", seen.application):
            heard.take(seen)

    def measure(seen: Measurement, timestamp_us: int) -> None:
        if is_since(seen, timestamp_us, plan.since_us):
            found.measure(seen, timestamp_us)

    fold(log, take, plan.since_us, progress or Silent(), measure=measure if plan.metrics else None)
    found.until(log.end_us)
    return found


def fold(
    log: ReadLog,
    take: Callable[[Observation, int], None],
    since_us: int,
    progress: Progress,
    most: int = 0,
    measure: Callable[[Measurement, int], None] | None = None,
) -> None:
    """Tell each observation since a time once, with its record's timestamp.

    Args:
        log: that is read.
        take: is told them; those of a partition in its order.
        since_us: the time.
        progress: is told how far it is.
        most: about so many records of the newest are read; 0 = all.
        measure: is told what metrics came to, likewise; None = nobody is.

    Raises:
        UsageError: there is no topic of observations.
        Unreachable: no broker answers.
    """
    copies, count, end_us = Copies(log.window.memory_us, log.settings.control.ids_mib << 20), 0, log.end_us
    comparable = ComparableMeasurements(log.codec, copies)
    progress.waits("the observations")
    for record, several in _observations(log, since_us, most):
        if measure is not None:
            for measured in comparable.take(record, has_observations=bool(several)):
                measure(measured, record.timestamp_us)
        for seen in several:
            count += 1
            if count % _TOLD == 0:
                progress.waits("the observations", f"{count:,} read")
            if not copies.has(seen.query_id, record.timestamp_us, record.partition):
                take(seen, record.timestamp_us)
    if measure is not None:
        for measured in comparable.until(end_us):
            measure(measured, end_us)
    progress.done(f"{count:,} observations read")


def _observations(log: ReadLog, since_us: int, most: int) -> Iterator[tuple[Record, Sequence[Observation]]]:
    """Yield records since a time, with what was observed; measurements have none of that."""
    for record in log.records(topics.OBSERVATIONS, since_us, most):
        with suppress(DecodeError):  # the learner makes a dead letter of it
            yield record, log.codec.decode(Observations, record.value).items
