"""The figures of docs/hedging.md."""

from __future__ import annotations

from load.research.parm import hedge
from load.results.results import Result


def test_what_hedging_saved_stands_beside_what_it_asked() -> None:
    """A percentile that a short run does not have is left open, in the table and in the picture."""
    figures = {"plain_p50_ms": 11.5, "plain_p99_ms": 541.0, "plain_p999_ms": 560.0}
    figures |= {"hedged_p50_ms": 10.6, "hedged_p99_ms": 38.3}
    figures |= {"plain_defaults": 2.0, "hedged_defaults": 0.0, "plain_queries_sent": 900.0}
    figures |= {"p999_saved": 0.9, "extra": 0.049, "outage_again": 12.0, "outage_asked": 170.0}
    result = Result("hedge", figures, {"form": "full", "still_s": 0.5, "every_s": 5.0, "outage_s": 3.0})
    environment = {"cores_usable": 2, "processor": "a processor", "broker": "a broker", "load_average": [0.5]}
    text = hedge.SCENARIO.written(result, environment)  # type: ignore[arg-type]
    assert text.startswith("## Figures")
    assert "| `hedge: 0.05` | 10.6 | 38.3 |  | 0 |" in text
    assert "90.0% lower for 4.9% more questions" in text
    assert hedge.plots(result)["hedging.png"].startswith(b"\x89PNG")
