"""What a host reports: what is in memory, what was unloaded, what is taken out, and what batches take."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from streams.operators.statistics import as_label, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from workers.kernel.host.memory import Memory
    from workers.kernel.host.models import Hosted
    from workers.kernel.schedule.profiles import Profiles

# Models whose own figures a report has: with more it would grow too large.
MOST_TOLD: Final = 64


def figures_of(models: Mapping[str, Hosted], memory: Memory, profiles: Profiles, now_us: int) -> dict[str, float]:
    """Return the figures of a host, and of the models that were asked; of many, those that are in memory."""
    asked = [hosted for hosted in models.values() if hosted.worker is not None]
    if len(asked) > MOST_TOLD:
        asked = [memory.units[unit][0] for unit in memory if "@" not in unit]
    told = asked[-MOST_TOLD:]
    figures: dict[str, float] = {}
    for hosted in told:
        figures |= hosted.worker.statistics() if hosted.worker is not None else {}
    figures |= times_of(profiles, [hosted.model.name for hosted in told])
    figures |= {**_in_memory(memory), **_taken_out(models, now_us), **predicted(profiles)}
    return figures | {
        "host_known_models": float(len(models)),
        "host_resident_models": float(len(memory.residency)),
        "host_resident_bytes": float(memory.residency.used_bytes),
        "host_budget_bytes": float(memory.residency.budget_bytes),
    }


def times_of(profiles: Profiles, models: Iterable[str]) -> dict[str, float]:
    """Return the p99 of the last ten batches of each model and size, and how well its batches were predicted (us)."""
    return {figure: value for model in models for figure, value in _of(profiles, model)}


def predicted(profiles: Profiles) -> dict[str, float]:
    """Return how well the times of all batches were predicted (us)."""
    errors = profiles.errors()
    return {
        "host_predicted_batches_total": float(errors.batches),
        "host_predicted_too_short_total": float(errors.under),
        "host_predicted_too_long_total": float(errors.over),
        "host_predicted_too_short_p99_us": float(errors.under_p99_us),
        "host_predicted_too_long_p99_us": float(errors.over_p99_us),
    }


def _of(profiles: Profiles, model: str) -> Iterator[tuple[str, float]]:
    kept, found = profiles.kept(model), profiles.of(model).predicted
    for rows, took_us in zip(kept.sizes, kept.p99_us, strict=True):
        yield render(("host_batch_p99_us", "model", model, "rows", str(rows))), float(took_us)
    if kept.load_us:
        yield render(("host_load_p99_us", "model", model)), float(kept.load_us)
    for name, value in (
        ("host_model_predicted_batches_total", found.batches),
        ("host_model_predicted_too_short_total", found.under),
        ("host_model_predicted_too_long_total", found.over),
        ("host_model_predicted_us_total", found.predicted_us),
        ("host_model_predicted_actual_us_total", found.took_us),
    ):
        yield render((name, "model", model)), float(value)


def _in_memory(memory: Memory) -> dict[str, float]:
    """Return which versions are in memory, and what made room last."""
    figures = {}
    for unit in memory:
        model = memory.units[unit][1].load.model
        figures[render(("resident", "model", model.name, "version", model.version))] = 1.0
    if (last := memory.last_eviction) is not None:
        labels = ("model", last.unit, "needed_by", last.needed_by or "memory")
        figures[render(("host_last_eviction_idle_s", *labels))] = last.idle_us / 1e6
    return figures


def _taken_out(models: Mapping[str, Hosted], now_us: int) -> dict[str, float]:
    """Return which versions are taken out, each with the reason, and how often in a row they were."""
    return {
        render(("taken_out", "model", name, "version", version, "reason", as_label(out.fault))): float(out.times)
        for name, hosted in models.items()
        for (version, _), out in hosted.out.items()
        if out.until_us > now_us
    }


# Models that a report names, of some 40 bytes each.
MOST: Final = 1_024
# A model that nobody has asked for so long (us) is named no more: rates are counted over less.
LATELY_US: Final = 60_000_000


class AskedLately:
    """How many rows were read for each model: of a bounded number, those that were asked last.

    A count that comes back begins at 0 again, as that of a process that was started again does.
    """

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()  # rows, and when (us); asked last at the end

    def add(self, model: str, rows: int, now_us: int) -> None:
        """Take that rows were read for a model."""
        known, _ = self._counts.pop(model, (0, 0))
        self._counts[model] = known + rows, now_us
        while len(self._counts) > MOST or now_us - next(iter(self._counts.values()))[1] > LATELY_US:
            self._counts.popitem(last=False)

    def figures(self) -> dict[str, float]:
        """Return the counts, by name and model."""
        return {render(("host_asked_total", "model", model)): float(rows) for model, (rows, _) in self._counts.items()}
