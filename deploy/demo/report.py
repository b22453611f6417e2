"""The demo's report folder: `report.json` with the figures, `report.html` with the plots."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
        "error": round(counted.get("error", 0.0), 5),
        "error_by_model": {name: round(error, 5) for name, error in error_by_model.items()},
        "error_best_single": round(min(error_by_model.values()), 5),
        "latency_ms": {name: round(value, 2) for name, value in recorder.latency_ms().items()},
        "within_slo": round(counted["within_slo"], 5),
        "models": {name: _model(tally, name) for name in tally.models},
    }


def _model(tally: Tally, name: str) -> dict[str, float]:
    return {
        **{f"share_{phase}": round(tally.share(name, phase), 4) for phase in ("before", "during", "after")},
        "batch_cap_max": tally.models[name].cap_max,
        "batches": tally.meters.count("batches_total", name),
        "rows": tally.meters.count("rows_total", name),
    }


def write_json(content: Mapping[str, Any], folder: Path) -> Path:
    """Write `report.json`; returns its path."""
    path = folder / "report.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path
