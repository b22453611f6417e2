"""The last minutes in steps: increases of counters, and sizes of gauges.

report, and the one before it ──▶ add ──▶ 60 steps of 5 s ──▶ since(…) sums, series(…) for a small plot
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streams.control.figures import LAG, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streams.control.figures import Figures

    Risen: TypeAlias = Mapping["Key", float]
    Series: TypeAlias = list[float | None]

STEP_US = 5_000_000
STEPS = 60
# Sums in a step: a thousand applications of some models have twenty thousand.
MOST_KEYS = 50_000
# The counters that the page follows; a label's values are bounded where they are counted.
FOLLOWED = frozenset(
    (
        "answer_seconds_bucket",
        "answers_total",
        "asked_total",
        "batch_rows_total",
        "batches_given_up_total",
        "batches_total",
        "cache_total",
        "cost_total",
        "dead_letters_total",
        "decided_without_state_total",
        "failed_outputs_total",
        "features_total",
        "hedges_total",
        "host_asked_total",
        "interval_widths_total",
        "intervals_judged_total",
        "intervals_total",
        "joined_total",
        "kernel_failures_total",
        "label_set_sizes_total",
        "label_sets_judged_total",
        "label_sets_total",
        "late_answers_total",
        "late_outputs_total",
        "loss_total",
        "losses_total",
        "model_cost_total",
        "model_loss_total",
        "model_losses_total",
        "over_limit_total",
        "overloaded_total",
        "predict_us_total",
        "rows_total",
        "stages_total",
        "steps_total",
        "store_failures_total",
        "version_joined_total",
        "version_loss_total",
    )
)


class Key(NamedTuple):
    """A counter: its name, the application and the model it is about, and the values of its other labels.

    Sums are kept, too: over models, and over the last of the other labels (`default deadline`, `default`, all).
    """

    name: str
    application: str = ""
    model: str = ""
    rest: str = ""


@lru_cache(maxsize=8_192)
def keys(full: str) -> tuple[Key, ...]:
    """Return what a counter adds to; nothing if the page does not follow it."""
    name, labels = parse(full)
    if name not in FOLLOWED:
        return ()
    application, model = labels.pop("application", ""), labels.pop("model", "")
    others = list(labels.values())
    found = [Key(name, application, model, " ".join(others[:count])) for count in range(len(others) + 1)]
    return (*found, Key(name, application)) if application and model else tuple(found)


@dataclass(slots=True)
class HistoryStep:
    """Five seconds."""

    start_us: int
    risen: Counter[Key] = field(default_factory=Counter)  # over all processes
    lags: dict[str, float] = field(default_factory=dict)  # the last of each process


class History:
    """The last five minutes of what all processes reported; bounded, and lost with the process."""

    __slots__ = ("_began_us", "_steps")

    def __init__(self) -> None:
        self._steps: deque[HistoryStep] = deque(maxlen=STEPS)
        self._began_us = 0

    def add(self, before: Figures | None, after: Figures, now_us: int) -> None:
        """Take a process's figures, and what they were before; the same ones again add nothing."""
        if before is after:
            return
        self._began_us = self._began_us or now_us
        step = self._step(now_us)
        if LAG in after["gauges"]:
            step.lags[after["instance"]] = after["gauges"][LAG]
        if before is None:
            return
        for name, value in after["counters"].items():
            last = before["counters"].get(name, 0.0)
            if value != last:
                rise: float = value - last if value > last else value
                for key in keys(name) if len(step.risen) < MOST_KEYS else ():
                    step.risen[key] += rise  # type: ignore[assignment]  # sums of losses are fractions

    def since(self, span_us: int, now_us: int) -> tuple[float, Risen]:
        """Return how many seconds the steps of the last `span_us` cover, at least one, and what counters rose by."""
        risen: Counter[Key] = Counter()
        first_us = now_us
        for step in self._steps:
            if step.start_us > now_us - span_us:
                risen.update(step.risen)
                first_us = min(first_us, step.start_us)
        return max(1.0, (now_us - max(first_us, self._began_us)) / 1e6), risen

    def series(self, figure: Callable[[Risen], float | None], now_us: int) -> Series:
        """Return a figure of what rose in each whole step, None where nothing was reported."""
        newest_us = now_us // STEP_US * STEP_US  # this one is not over
        known = {step.start_us: step for step in self._steps}
        starts = range(newest_us - STEPS * STEP_US, newest_us, STEP_US)
        return [figure(known[start].risen) if start in known else None for start in starts]

    def lags(self, instances: Iterable[str], now_us: int) -> Series:
        """Return the sum of these processes' lags at the end of each step, None where none reported."""
        newest_us = now_us // STEP_US * STEP_US
        known = {step.start_us: step.lags for step in self._steps}
        names = tuple(instances)
        found: Series = []
        for start in range(newest_us - STEPS * STEP_US, newest_us + STEP_US, STEP_US):
            values = [known[start][name] for name in names if name in known[start]] if start in known else []
            found.append(sum(values) if values else None)
        return found

    def _step(self, now_us: int) -> HistoryStep:
        start_us = now_us // STEP_US * STEP_US
        if not self._steps or self._steps[-1].start_us != start_us:
            self._steps.append(HistoryStep(start_us))
        return self._steps[-1]
