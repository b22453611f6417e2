"""What a kernel counts: cheap to add to for each record, rendered once a second for the reports.

Counters     counts by name and labels
Durations    how long those of the last minute took: median and 99th percentile; and all ever, as a histogram
Losses       what answers and models cost
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Final, TypeAlias

from schemas.records import JoinStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from schemas.records import Observation

# A name, then pairs of label name and value: ("answers_total", "application", "digits", "status", "default").
Key: TypeAlias = tuple[str, ...]

_JOINED = JoinStatus.JOINED  # looking it up costs 0.1 us
# Gauge of records that lie in partitions of a topic which nobody serves; it is there where there are such partitions.
UNSERVED = "unserved_records"
# Answers that columns have given, by application; 1 for each application whose queries columns leave, and why.
BY_COLUMNS, NOT_BY_COLUMNS = "answers_by_columns_total", "not_by_columns"
# Gauge of how long before it came an application's last expired query had been sent, by its sender's clock. It is there
# while more than this share of its last queries had expired when they came.
SENT_AGO, MOST_EXPIRED = "expired_sent_ago_us", 0.8
# Enough for a 99th percentile, and sorted in 40 us.
_LATEST = 512
# Half of what percentiles look back on. A slow start must not stand on the page twelve minutes later.
_HALF_US = 30_000_000
# Losses from which on their share says something.
_TELLING = 50
# Beyond these nothing stands in a label that the page takes, nor so much (`control.page.report_filter`).
_UNFIT, _LONGEST = re.compile(r"[^A-Za-z0-9_.@:+()-]", re.ASCII), 200
# Figures of a kind in a report, from which on no more are added: it must stay far below what a record may hold.
MAX_LABELS = 1_024
# Bounds of histograms as shares of an objective.
SHARES: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0, 3 / 2, 2.0, 4.0, 16.0)
_COMMON_US: Final = 100_000
# How figures of a histogram end; `BUCKET` comes before labels of which the last is `le`, the bound in seconds.
BUCKET, SUM, COUNT = "_seconds_bucket", "_seconds_sum", "_seconds_count"
# How often a duration was within the objective, which is one of the bounds; and the objective.
WITHIN, OBJECTIVE = "_within_objective_total", "_objective_seconds"
# Of so many values of a label there are histograms: each has as many figures as all else that is told of it.
_MOST_HISTOGRAMS = 64
_FEW = 12  # durations from which on a sort and a look for each bound cost less than a look for each duration


class Counters(Counter[Key]):
    """Counts by name and labels."""

    def rendered(self) -> dict[str, float]:
        """Return `name{label=value,...} -> count`, the form that reports carry."""
        return {render(key): float(count) for key, count in self.items()}


def render(key: Key) -> str:
    """Write a key as `name{label=value,...}`; a name without labels stands alone."""
    labels = ",".join(f"{name}={value}" for name, value in zip(key[1::2], key[2::2], strict=True))
    return f"{key[0]}{{{labels}}}" if labels else key[0]


def as_label(text: str) -> str:
    """Return a text as the value of a label may be: spaces and slashes are written as `_` and `+`, others are left out.

    Examples:
        >>> as_label("/data/net-3: net.onnx is missing")
        '+data+net-3:_net.onnx_is_missing'
    """
    words = " ".join(text.split()).replace(" ", "_").replace("/", "+")
    return _UNFIT.sub("", words)[:_LONGEST]


def from_label(value: str) -> str:
    """Return the text of a label's value, for people."""
    return value.replace("_", " ").replace("+", "/")


class _Window:
    """The latest durations (us) of a minute, in two halves: the older one goes when the newer one is over."""

    __slots__ = ("_before", "_latest", "_since_us")

    def __init__(self, now_us: int) -> None:
        self._since_us = now_us
        self._latest: deque[int] = deque(maxlen=_LATEST)
        self._before: deque[int] = deque()

    def add(self, durations: Iterable[int], now_us: int) -> None:
        age_us = now_us - self._since_us
        if age_us >= _HALF_US:
            self._before = self._latest if age_us < 2 * _HALF_US else deque()
            self._latest, self._since_us = deque(maxlen=_LATEST), now_us
        self._latest.extend(durations)

    def ordered(self) -> list[int]:
        return sorted([*self._before, *self._latest])


class Histogram:
    """Durations by how they stand to an objective: they can be added over processes and windows, as quantiles cannot.

    Args:
        objective_us: the bounds are shares of it; None = nobody has one, and they are shares of a tenth of a second.
    """

    __slots__ = ("_bounds_us", "_counts", "_total_us", "objective_us")

    def __init__(self, objective_us: int | None) -> None:
        self.objective_us = objective_us
        objective_us = objective_us or _COMMON_US
        self._bounds_us = [round(share * objective_us) for share in SHARES]
        self._counts = [0] * (len(SHARES) + 1)
        self._total_us = 0

    def add(self, durations: Collection[int]) -> None:
        """Count durations (us)."""
        bounds, counts = self._bounds_us, self._counts
        if len(durations) < _FEW:
            for took_us in durations:
                counts[bisect_left(bounds, took_us)] += 1
        else:
            ordered, before = sorted(durations), 0
            for place, bound in enumerate(bounds):
                until = bisect_right(ordered, bound, before)
                counts[place] += until - before
                before = until
            counts[-1] += len(ordered) - before
        self._total_us += sum(durations)

    def rendered(self, name: str, label: str, value: str) -> dict[str, float]:
        """Return how many were within each bound, all, their sum in seconds, and how many were within the objective."""
        found, within = dict[str, float](), 0
        for bound_us, share, count in zip(self._bounds_us, SHARES, self._counts, strict=False):
            within += count
            found[render((f"{name}{BUCKET}", label, value, "le", f"{bound_us / 1e6:g}"))] = float(within)
            if share == 1.0 and self.objective_us:
                found[render((f"{name}{WITHIN}", label, value))] = float(within)
        whole = float(within + self._counts[-1])
        found[render((f"{name}{BUCKET}", label, value, "le", "+Inf"))] = whole
        found[render((f"{name}{COUNT}", label, value))] = whole
        found[render((f"{name}{SUM}", label, value))] = self._total_us / 1e6
        if self.objective_us:
            found[render((f"{name}{OBJECTIVE}", label, value))] = self.objective_us / 1e6
        return found


class Durations:
    """How long things took (us), by the value of one label: the latest of a minute, and all, as histograms.

    The minute ends with the last one added. Beyond 64 values of the label no more have histograms.
    """

    __slots__ = ("_histograms", "_label", "_name", "_objectives_us", "_windows")

    def __init__(self, name: str, label: str) -> None:
        """Start empty.

        Args:
            name: of the figures, before `_p50_us`, `_p99_us`, `_seconds_bucket` and so on.
            label: whose value tells them apart.
        """
        self._name = name
        self._label = label
        self._windows: dict[str, _Window] = {}
        self._histograms: dict[str, Histogram] = {}
        self._objectives_us: dict[str, int] = {}

    def aim(self, objectives_us: Mapping[str, int]) -> None:
        """Take the objectives by value of the label; the histogram of one that has changed begins anew."""
        self._objectives_us = dict(objectives_us)
        for value, histogram in [*self._histograms.items()]:
            if histogram.objective_us != self._objectives_us.get(value):
                del self._histograms[value]

    def add(self, value: str, durations: Collection[int], now_us: int) -> None:
        """Take durations that ended at `now_us`."""
        window = self._windows.get(value)
        if window is None:
            window = self._windows[value] = _Window(now_us)
        window.add(durations, now_us)
        histogram = self._histograms.get(value)
        if histogram is None:
            if len(self._histograms) >= _MOST_HISTOGRAMS:
                return
            histogram = self._histograms[value] = Histogram(self._objectives_us.get(value))
        histogram.add(durations)

    def rendered(self) -> dict[str, float]:
        """Return the median and the 99th percentile of each, and its histogram."""
        found = {}
        for value, window in self._windows.items():
            ordered = window.ordered()
            for percent in (50, 99) if ordered else ():
                key = render((f"{self._name}_p{percent}_us", self._label, value))
                found[key] = float(ordered[len(ordered) * percent // 100])
        for value, histogram in self._histograms.items():
            found |= histogram.rendered(self._name, self._label, value)
        return found


class Losses:
    """Losses of served answers and asked models, from feedback: sums and counts, for means of any window."""

    __slots__ = ("_costs", "_full", "_models", "_served")

    def __init__(self) -> None:
        # In the unit of the application's loss, by application; and by application and model.
        self._costs: defaultdict[tuple[str, ...], float] = defaultdict(float)
        # Of losses of numbers, whether each of the latest was a whole one, by application.
        self._full: defaultdict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=_LATEST))
        self._served: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._models: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(lambda: [0.0, 0.0])
        )

    def add(self, observations: Iterable[Observation]) -> None:
        """Count observations, a lesson of less weight in part; default losses are left out, as they measure nothing."""
        for seen in observations:
            if seen.status is not _JOINED:
                continue
            application, decision, losses, served = seen.application, seen.decision, seen.losses, seen.loss
            weight, worth = 1.0 if seen.weight is None else seen.weight, seen.worth
            if served is not None:
                entry = self._served[application]
                entry[0] += weight * served
                entry[1] += weight
                if worth is not None:
                    self._costs[application,] += weight * served * worth
            models = self._models[application]
            for arm in decision.chosen:
                loss = losses[arm]
                if loss is None:
                    continue
                if seen.span is not None:
                    self.note_spanned(application, loss)
                entry = models[decision.arms[arm]]
                entry[0] += weight * loss
                entry[1] += weight
                if worth is not None:
                    self._costs[application, decision.arms[arm]] += weight * loss * worth

    def note_spanned(self, application: str, loss: float) -> None:
        """Count the loss of a number, which has a span."""
        self._full[application].append(loss >= 1.0)

    def sums(self, application: str, models: Iterable[str]) -> list[tuple[float, float]]:
        """Return sum and count of an application's served losses, then of those of its models."""
        known: Mapping[str, list[float]] = self._models.get(application, {})
        entries = [self._served.get(application), *[known.get(model) for model in models]]
        return [(0.0, 0.0) if entry is None else (entry[0], entry[1]) for entry in entries]

    def put(self, application: str, models: Iterable[str], sums: Sequence[tuple[float, float]]) -> None:
        """Put what `sums` has returned, with more losses added to it."""
        for owner, name, entry in zip(
            [self._served, *[self._models[application]] * (len(sums) - 1)], [application, *models], sums, strict=True
        ):
            if entry[1]:
                owner[name][:] = entry

    def rendered(self) -> dict[str, float]:
        """Return `loss_total` and `losses_total` by application, `model_loss_total`... by application and model.

        Where losses have a unit, also `cost_total` and `model_cost_total`: the same in this unit.

        `full_loss_share` is the share of the latest losses of numbers that were 1. Near 1, models cannot be compared.
        """
        found = {
            render(("full_loss_share", "application", application)): sum(latest) / len(latest)
            for application, latest in self._full.items()
            if len(latest) >= _TELLING
        }
        for (name, *model), cost in self._costs.items():
            labels = ("application", name, *(("model", *model) if model else ()))
            found[render(("model_cost_total" if model else "cost_total", *labels))] = cost
        for application, (loss, count) in self._served.items():
            found[render(("loss_total", "application", application))] = loss
            found[render(("losses_total", "application", application))] = count
        for application, models in self._models.items():
            for each, (loss, count) in models.items():
                labels = ("application", application, "model", each)
                found[render(("model_loss_total", *labels))] = loss
                found[render(("model_losses_total", *labels))] = count
        return found
