"""What a host reports of the times of its models' batches: as predicted, and as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.statistics import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workers.kernel.schedule.profiles import Profiles


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
        ("batches", found.batches),
        ("too_short", found.under),
        ("too_long", found.over),
        ("us", found.predicted_us),
        ("actual_us", found.took_us),
    ):
        yield render((f"host_model_predicted_{name}_total", "model", model)), float(value)
