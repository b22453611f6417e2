"""One moment of the demo as a frozen value: what the screen and the plain line show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.demo.tally import recent
from deploy.demo.trial import tried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.demo.tally import Tally
    from load.harness.recorder import Recorder

WINDOW_S = 5


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model over the last seconds; None where it answered nothing in them."""

    name: str
    share: float
    error: float | None
    batch_cap: int | None  # of its last batch
    batch_rows: float | None  # mean
    queue_rows: int  # most that a batch left waiting
    is_broken: bool


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A new version of a model beside the one that served before it."""

    name: str
    state: str
    answered: int  # as a canary, and of that the errors
    error: float | None
    before: str  # the version
    error_before: float | None  # of the version before, meanwhile
    since: int  # answered since it serves


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The application over the last seconds, totals since the start, and every model."""

    application: str
    second: float
    seconds: float
    broken: str | None  # the model that answers wrongly now
    rate: float
    error: float | None
    latency_ms: Mapping[str, float]
    in_time: int
    defaults: int
    late: int
    waiting: int
    feedback_sent: int
    joined: int
    applied: int
    dead_letters: int
    cached: float | None  # share of the models' outputs that they were not asked for
    trial: TrialLine
    models: tuple[ModelLine, ...]


def take(tally: Tally, recorder: Recorder, seconds: float, feedback_sent: int, now_us: int, breaking: str) -> Snapshot:
    """Return what has been counted by `now_us`.

    Args:
        tally: of models.
        recorder: of answers.
        seconds: the planned length of the load.
        feedback_sent: by the client.
        now_us: the time.
        breaking: the model that breaks.
    """
    second = min(max(0.0, (now_us - tally.start_us) / 1e6), seconds)
    until = int(second)
    answered = recent(tally.judged_by_second, until, WINDOW_S)
    total = recorder.total
    broken = breaking if tally.phase(second) == "during" else None
    return Snapshot(
        application=tally.application,
        second=second,
        seconds=seconds,
        broken=broken,
        rate=answered / max(1, min(until, WINDOW_S)),
        error=recent(tally.wrong_by_second, until, WINDOW_S) / answered if answered else None,
        latency_ms=recorder.recent_ms(until - WINDOW_S, until),
        in_time=total.in_time,
        defaults=total.defaults,
        late=total.late,
        waiting=recorder.open,
        feedback_sent=feedback_sent,
        joined=tally.joined,
        applied=tally.applied,
        dead_letters=tally.dead_letters,
        cached=_cached(tally, until),
        trial=_trial(tally, second),
        models=tuple(_line(tally, name, until, is_broken=name == broken) for name in tally.models),
    )


def _cached(tally: Tally, until: int) -> float | None:
    models = tally.models.values()
    judged = sum(recent(model.judged_by_second, until, WINDOW_S) for model in models)
    cached = sum(recent(model.cached_by_second, until, WINDOW_S) for model in models)
    return cached / judged if judged else None


def _trial(tally: Tally, second: float) -> TrialLine:
    trial = tally.trial
    done = tried(tally.models[trial.model].versions, trial)
    return TrialLine(
        name=f"{trial.model} {trial.version}",
        state=trial.state(second),
        answered=done.answered,
        error=done.error,
        before=trial.before,
        error_before=done.error_beside,
        since=done.since,
    )


def _line(tally: Tally, name: str, until: int, *, is_broken: bool) -> ModelLine:
    asked = sum(recent(model.asked_by_second, until, WINDOW_S) for model in tally.models.values())
    model = tally.models[name]
    judged = recent(model.judged_by_second, until, WINDOW_S)
    batches = recent(model.batches_by_second, until, WINDOW_S)
    queues = (model.queue_by_second.get(second, 0) for second in range(max(0, until - WINDOW_S), until))
    return ModelLine(
        name=name,
        share=recent(model.asked_by_second, until, WINDOW_S) / max(1, asked),
        error=recent(model.wrong_by_second, until, WINDOW_S) / judged if judged else None,
        batch_cap=model.cap_by_second[max(model.cap_by_second)] if model.cap_by_second else None,
        batch_rows=recent(model.rows_by_second, until, WINDOW_S) / batches if batches else None,
        queue_rows=max(queues, default=0),
        is_broken=is_broken,
    )
