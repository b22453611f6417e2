"""The demo's report folder: `report.json` with the figures, `report.html` with the plots."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from deploy.demo.hindsight import best
from deploy.demo.plots import Series

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from deploy.demo.hindsight import Alone
    from deploy.demo.tally import Tally
    from load.recorder import Recorder


def figures(
    tally: Tally, recorder: Recorder, feedback_sent: int, error_by_model: Mapping[str, float]
) -> dict[str, Any]:
    """Return what the client counted, rates and shares rounded to five digits."""
    counted = recorder.figures()
    return {
        **{
            name: int(counted[name])
            for name in ("queries_sent", "predictions_distinct", "lost", "duplicates", "defaults", "late")
        },
        "feedback_sent": feedback_sent,
        "observations_joined": tally.joined,
        "observations_applied": tally.applied,
        "dead_letters": tally.dead_letters,
        "error": round(tally.error, 5),
        "error_by_model": {name: round(error, 5) for name, error in error_by_model.items()},
        "error_best_single": round(min(error_by_model.values()), 5),
        "latency_ms": {name: round(value, 2) for name, value in recorder.latency_ms().items()},
        "within_slo": round(counted["within_slo"], 5),
        "models": {name: _model(tally, name) for name in tally.models},
    }


def _model(tally: Tally, name: str) -> dict[str, float]:
    return {
        **{f"share_{phase}": round(tally.share(name, phase), 4) for phase in ("before", "during", "after")},
        "batch_cap_max": int(tally.models[name].cap_max),
        "batches": tally.meters.count("batches_total", name),
        "rows": tally.meters.count("batch_rows_total", name),
    }


def series(tally: Tally, recorder: Recorder, alone: Mapping[str, Alone], breaking: str) -> Series:
    """Return what is plotted, one value a second."""
    seconds = 1 + max(tally.judged_by_second, default=0)
    windows = {int(row["start_us"] or 0) // 1_000_000: row for row in recorder.windows()}
    return Series(
        broken_s=tally.broken_s,
        broken_model=breaking,
        best_model=best(alone),
        asked=_counts(tally.judged_by_second, seconds),
        wrong=_counts(tally.wrong_by_second, seconds),
        asked_by_model={name: _counts(model.asked_by_second, seconds) for name, model in tally.models.items()},
        wrong_by_model={name: _counts(model.wrong_by_second, seconds) for name, model in alone.items()},
        cap_by_model={name: _filled(model.cap_by_second, seconds) for name, model in tally.models.items()},
        latency_ms={name: _column(windows, f"{name}_ms", seconds) for name in ("p50", "p99")},
        slo_ms=recorder.slo_us / 1000,
    )


def _counts(counts: Mapping[int, int], seconds: int) -> NDArray[np.float64]:
    return np.array([counts.get(second, 0) for second in range(seconds)], dtype=np.float64)


def _filled(values: Mapping[int, float], seconds: int) -> NDArray[np.float64]:
    """Carry the last value on: a worker reports about once a second, not once in every second."""
    filled, last = np.full(seconds, np.nan), np.nan
    for second in range(seconds):
        last = values.get(second, last)
        filled[second] = last
    return filled


def _column(windows: Mapping[int, Mapping[str, float | None]], name: str, seconds: int) -> NDArray[np.float64]:
    found = (windows.get(second, {}).get(name) for second in range(seconds))
    return np.array([np.nan if value is None else value for value in found])


def write_json(content: Mapping[str, Any], folder: Path) -> Path:
    """Write `report.json`; returns its path."""
    path = folder / "report.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def read_json(folder: Path) -> dict[str, Any]:
    """Read `report.json` back."""
    content: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return content
