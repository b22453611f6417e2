"""What a trace holds beyond its manifest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from schemas.codec import Codec
from schemas.records import Feedback, ModelOutput, Observations, Outcome, Prediction, Query, Status
from streams.operators.contract import Record
from streams.trace.contents import STEPS, contents, plot
from streams.trace.manifest import TraceManifest
from streams.trace.reader import Trace
from streams.trace.writer import TraceWriter
from tests.histories import served

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CODEC = Codec()
THEN_US = 1_700_000_000_000_000
OK, MISSING = ModelOutput("good", "1", Outcome.OK, 1), ModelOutput("slow", "2", Outcome.MISSING, None)


def record(topic: str, offset: int, at_s: float, value: object) -> Record:
    """Return a record of one partition."""
    data = value if isinstance(value, bytes) else CODEC.encode(value)
    return Record(topic, 0, offset, THEN_US + int(at_s * 1e6), None, data)


def answer(query_id: str, status: Status, reason: str | None, *outputs: ModelOutput) -> Prediction:
    """Return a prediction."""
    return Prediction(query_id, "digits", None, None, status, reason, 1, 1.0, outputs, 0, 0, 0, 0)


def recorded(folder: Path, records: Sequence[Record]) -> Trace:
    """Return records as a trace."""
    with TraceWriter(folder, TraceManifest("shop", "0"), CODEC) as writer:
        for topic in ("queries", "predictions", "feedback", "observations"):
            writer.expect(topic, {0: 0})
        writer.add(records)
    return Trace.open(folder)


def test_rates_applications_models_and_delays_are_counted(tmp_path: Path) -> None:
    """A model that did not answer has no version; a default tells its reason."""
    queries = [record("queries", at, at, Query(f"q-{at}", "digits" if at else "texts", "x")) for at in range(60)]
    answers = [
        record("predictions", 0, 1, answer("q-0", Status.COMPLETE, None, OK)),
        record("predictions", 1, 2, answer("q-1", Status.DEFAULT, "deadline", MISSING)),
    ]
    told = [
        record("feedback", 0, 6, Feedback("q-0", 1)),
        record("feedback", 1, 7, Feedback("unknown", 1)),
        record("feedback", 2, 8, b"?"),
    ]
    found = contents(recorded(tmp_path, [*queries, *answers, *told]), CODEC)
    assert found.applications == {"digits": 59, "texts": 1}
    assert found.statuses == {"complete": 1, "default: deadline": 1}
    assert found.models == {"good@1": {"ok": 1}, "slow": {"missing": 1}}
    assert found.delays.quantile_ms(0.5) == pytest.approx(5_000, rel=0.01)
    assert (found.unmatched, found.undecodable) == (1, 1)
    assert sum(found.counts["queries"]) == 60
    assert len(found.counts["queries"]) == STEPS
    assert found.summary()["feedback_delay_ms"]["p99"] == pytest.approx(5_000, rel=0.01)


def test_observations_are_counted_one_by_one(tmp_path: Path) -> None:
    """A record holds several; the table says both, sorted by topic, small sizes in KiB."""
    values = [Observations(served("exp3", 5)), Observations(served("exp3", 2))]
    trace = recorded(tmp_path / "t", [record("observations", at, at, value) for at, value in enumerate(values)])
    assert contents(trace, CODEC).observations == 7
    shown = CliRunner().invoke(skysail, ["trace", "show", str(tmp_path / "t")]).stdout.splitlines()
    assert re.search(r"observations +1 +2 \(7 observations\) +\d+\.\d KiB", "\n".join(shown))
    assert [line.split()[0] for line in shown[1:5]] == ["feedback", "observations", "predictions", "queries"]


def test_a_trace_without_records_has_no_rates(tmp_path: Path) -> None:
    """Nothing is divided by nothing."""
    found = contents(recorded(tmp_path, []), CODEC)
    assert (found.counts, found.summary()["feedback_delay_ms"]["p50"]) == ({}, None)


def test_a_plot_shows_what_is_there() -> None:
    """The most as a full bar, little as the lowest one, nothing as none."""
    assert plot([0, 1, 500, 1000]) == " ▁▄█"
    assert plot([0, 0]) == "  "
