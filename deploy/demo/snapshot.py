"""One moment of the demo as a frozen value: what the screen and the plain line show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.demo.tally import recent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.demo.tally import Tally
    from load.recorder import Recorder

WINDOW_S = 5


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model over the last seconds; `error` is None where it was not asked."""

    name: str
    share: float
    error: float | None
    batch_cap: float
    batch_rows: float
    queue_rows: float
    is_broken: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The application over the last seconds, totals since the start, and every model."""

    application: str
    second: float
    seconds: float
    is_broken: bool
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
    models: tuple[ModelLine, ...]


def take(
    tally: Tally, recorder: Recorder, *, seconds: float, feedback_sent: int, now_us: int, breaking: str
) -> Snapshot:
    """Return what has been counted by `now_us`.

    Args:
        tally: of models.
        recorder: of answers.
        seconds: the planned length of the load.
        feedback_sent: by the client.
        now_us: the time.
        breaking: the model that breaks.
    """
    elapsed_s = max(0.0, (now_us - tally.start_us) / 1e6)
    until = int(min(elapsed_s, seconds))
    answered = recent(tally.judged_by_second, until, WINDOW_S)
    total = recorder.total
    is_broken = tally.phase(elapsed_s) == "during"
    return Snapshot(
        application=tally.application,
        second=min(elapsed_s, seconds),
        seconds=seconds,
        is_broken=is_broken,
        rate=answered / max(1, min(until, WINDOW_S)),
        error=recent(tally.wrong_by_second, until, WINDOW_S) / answered if answered else None,
        latency_ms=recorder.latency_ms(),
        in_time=total.in_time,
        defaults=total.defaults,
        late=total.late,
        waiting=recorder.open,
        feedback_sent=feedback_sent,
        joined=tally.joined,
        applied=tally.applied,
        dead_letters=tally.dead_letters,
        models=tuple(_line(tally, name, until, is_broken=is_broken and name == breaking) for name in tally.models),
    )


def _line(tally: Tally, name: str, until: int, *, is_broken: bool) -> ModelLine:
    asked = sum(recent(model.asked_by_second, until, WINDOW_S) for model in tally.models.values())
    model = tally.models[name]
    judged = recent(model.judged_by_second, until, WINDOW_S)
    return ModelLine(
        name=name,
        share=recent(model.asked_by_second, until, WINDOW_S) / max(1, asked),
        error=recent(model.wrong_by_second, until, WINDOW_S) / judged if judged else None,
        batch_cap=tally.meters.gauge("batch_cap", name),
        batch_rows=model.batch_rows,
        queue_rows=tally.meters.gauge("queue_rows", name),
        is_broken=is_broken,
    )
