"""Legs and service times out of what a deployment has logged: its `predictions` and `model-predictions`.

    sent ──ask──▶ received ──dispatch──▶ fetched, waited, predicted ──reply──▶ answered ──answer──▶ read

A prediction says when its query was sent, received and answered. The record of its batch says how long it waited and
how long the model took. What is left of the time between is the two legs between selection and worker. Kafka stamps
that record in whole milliseconds, so single legs are told apart by their means alone. Only who reads `predictions` as
they come knows the last leg; without that, `reply` stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from schemas.records import ModelPredictions, Outcome, Prediction
from workers.simulation.errors import PlanError
from workers.simulation.legs import Leg, Legs
from workers.simulation.service import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LEAST = 50  # answers by models, to make legs of
_STAMP_US = 500  # a stamp in whole milliseconds is so much too early, on average
_SHARES = (0.1, 0.9)  # of the way there and back that one of them may have
_TOGETHER_US = 1_000  # records of one batch are written within this, or half of the time that the next one takes
_BUSY_US = 1_000  # a row that waited so long shows that the model was not free
_WAITED_FOR = frozenset({"deadline", "linger"})  # batches for which a free model was kept waiting
_LEGS = ("ask", "dispatch", "reply", "answer")


class Answer(NamedTuple):
    """A prediction, and when it was read (us); None = nobody has watched."""

    prediction: Prediction
    read_us: int | None = None


class Stamped(NamedTuple):
    """A batch's record, and its timestamp in Kafka (us)."""

    batch: ModelPredictions
    timestamp_us: int


class Whole(NamedTuple):
    """One batch.

    Attributes:
        model, worker: that predicted it.
        rows: of it.
        took_us: the model's time.
        waited_us: by the row that waited longest.
        stamp_us: when its first record was written, in whole milliseconds.
        released: why it started.
    """

    model: str
    worker: str
    rows: int
    took_us: int
    waited_us: int
    stamp_us: int
    released: str = ""


class _Trip(NamedTuple):
    """A query's way to its worker and back, without what it waited and was predicted."""

    received_us: int
    done_us: int  # when its batch would have been over, had there been no way
    stamped_us: int  # when its record was written
    answered_us: int | None  # None = it came too late


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learnt of a deployment.

    Attributes:
        legs: between its processes, and the turnaround of its workers.
        samples: times of batches (us), by model and rows.
    """

    legs: Legs
    samples: Mapping[str, Mapping[int, list[float]]]

    def service(self, model: str) -> Recorded:
        """Return the service times of a model as they were measured.

        Raises:
            PlanError: it was not seen.
        """
        if model not in self.samples:
            raise PlanError(f"no batch of model {model} was seen; there are: {', '.join(sorted(self.samples))}")
        return Recorded.of(dict(self.samples[model]))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, times in ms."""
        return {
            "source": self.legs.source,
            "turnaround_ms": self.legs.turnaround_us / 1e3,
            "legs": {name: _plain(getattr(self.legs, name)) for name in _LEGS},
            "models": {
                model: {str(rows): [us / 1e3 for us in times] for rows, times in sorted(by_rows.items())}
                for model, by_rows in sorted(self.samples.items())
            },
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Calibration:
        """Read what `as_dict` has returned.

        Raises:
            PlanError: it is something else.
        """
        try:
            ask, dispatch, reply, answer = (_leg(plain["legs"][name]) for name in _LEGS)
            samples = {
                model: {int(rows): [ms * 1e3 for ms in times] for rows, times in by_rows.items()}
                for model, by_rows in plain["models"].items()
            }
            turnaround_us, source = round(plain["turnaround_ms"] * 1e3), str(plain["source"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"this is not what `skysail simulate --calibrate` writes: {error!r}") from error
        return cls(Legs(ask, dispatch, reply, answer, 0, turnaround_us, source), samples)


def calibrate(answers: Iterable[Answer], batches: Sequence[Stamped], source: str) -> Calibration:
    """Return the legs and service times of a deployment.

    Args:
        answers: in any order; only those that a model has completed count.
        batches: of the same time.
        source: says where they come from.

    Raises:
        PlanError: too few were answered.
    """
    first = {answer.prediction.query_id: answer for answer in reversed(list(answers))}
    trips = _trips(first, batches)
    full = {trip: trip.answered_us - trip.done_us for trip in trips if trip.answered_us is not None}
    if len(full) < _LEAST:
        raise PlanError(f"{len(full)} queries were answered by models; calibration needs {_LEAST}: let more be asked")
    back_us = float(np.mean([trip.answered_us - trip.stamped_us for trip in full if trip.answered_us is not None]))
    back = float(np.clip(back_us / max(1.0, float(np.mean(list(full.values())))), *_SHARES))
    # What came too late tells only how long it was on its way there; left out, legs would seem shorter than they are.
    there = [round(full[t] * (1 - back)) if t in full else t.stamped_us - t.done_us for t in trips]
    reply = Leg.recorded([trip.done_us for trip in full], [round(us * back) for us in full.values()])
    asked = [(p.sent_us, p.received_us - p.sent_us) for p, _ in first.values()]
    read = [(p.answered_us, read_us - p.answered_us) for p, read_us in first.values() if read_us is not None]
    legs = Legs(
        ask=Leg.recorded(*zip(*asked, strict=True)),
        dispatch=Leg.recorded([trip.received_us for trip in trips], there),
        reply=reply,
        answer=Leg.recorded(*zip(*read, strict=True)) if read else reply,
        turnaround_us=_turnaround_us(batches),
        source=source,
    )
    return Calibration(legs, samples_of(batches))


def samples_of(batches: Iterable[Stamped]) -> dict[str, dict[int, list[float]]]:
    """Return the times of batches (us) by model and rows."""
    samples: dict[str, dict[int, list[float]]] = {}
    for batch in whole(batches):
        samples.setdefault(batch.model, {}).setdefault(batch.rows, []).append(float(batch.took_us))
    return samples


def whole(batches: Iterable[Stamped]) -> list[Whole]:
    """Put the records of each batch together: there is one for each partition that its queries came from."""
    found: dict[tuple[str, str, int, int], Whole] = {}
    done: list[Whole] = []
    for batch, timestamp_us in sorted(batches, key=lambda stamped: stamped.timestamp_us):
        if not batch.batch_rows or not batch.predict_us:
            continue
        waited_us = max(batch.waited_us, default=0)
        key = batch.model, batch.worker, batch.predict_us, batch.batch_rows
        known = found.get(key)
        if known is not None and timestamp_us - known.stamp_us <= max(_TOGETHER_US, batch.predict_us // 2):
            found[key] = known._replace(waited_us=max(known.waited_us, waited_us))
            continue
        if known is not None:
            done.append(known)
        found[key] = Whole(
            batch.model, batch.worker, batch.batch_rows, batch.predict_us, waited_us, timestamp_us, batch.released
        )
    return sorted([*done, *found.values()], key=lambda batch: batch.stamp_us)


def _trips(answers: Mapping[str, Answer], batches: Iterable[Stamped]) -> list[_Trip]:
    """Put answers and batches together; of an ensemble the output counts that took longest."""
    longest: dict[str, tuple[int, int]] = {}  # waited and predicted, stamp
    for batch, timestamp_us in batches:
        for query_id, outcome, waited_us in zip(batch.query_ids, batch.outcomes, batch.waited_us, strict=True):
            if outcome is Outcome.OK and query_id in answers:
                found = waited_us + batch.predict_us, timestamp_us + _STAMP_US
                longest[query_id] = max(longest.get(query_id, found), found)
    trips = []
    for query_id, (there_us, stamped_us) in longest.items():
        prediction = answers[query_id].prediction
        answered_us = prediction.answered_us if prediction.reason is None else None
        trips.append(_Trip(prediction.received_us, prediction.received_us + there_us, stamped_us, answered_us))
    return trips


def _turnaround_us(batches: Iterable[Stamped]) -> int:
    """Return the mean time between batches of a worker that had rows waiting."""
    by_worker: dict[tuple[str, str], list[Whole]] = {}
    for batch in whole(batches):
        by_worker.setdefault((batch.model, batch.worker), []).append(batch)
    found = [
        after.stamp_us - before.stamp_us - after.took_us
        for its in by_worker.values()
        for before, after in pairwise(its)
        if after.waited_us > _BUSY_US and after.released not in _WAITED_FOR
    ]
    return max(0, round(float(np.mean(found)))) if found else 0


def _plain(leg: Leg) -> dict[str, list[float]]:
    return {"sent_ms": [us / 1e3 for us in leg.times_us], "took_ms": [us / 1e3 for us in leg.delays_us]}


def _leg(plain: Mapping[str, Sequence[float]]) -> Leg:
    sent, took = plain["sent_ms"], plain["took_ms"]
    if not sent or len(sent) != len(took):
        raise ValueError("a leg needs as many `took_ms` as `sent_ms`, at least one")
    return Leg.recorded([round(ms * 1e3) for ms in sent], [round(ms * 1e3) for ms in took])
