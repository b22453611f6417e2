"""`skysail replay --offline`: what it prints, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.cli.offline import deployment
from deploy.cli.what_if import _row
from deploy.errors import UsageError
from load.research.seeds.plan import PARTITIONS
from load.research.seeds.world import World
from schemas import topics
from schemas.records import Prediction
from streams.testing import virtual
from streams.testing.stores import SharedStore
from streams.trace.manifest import RecordedTopic, TraceManifest
from streams.trace.writer import TraceWriter
from tests.loops import CODEC
from tests.traces import RECORDED, trace_of
from tests.unit.load.test_seeds_find import at_once
from tests.unit.streams.replay.test_what_if import loop

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from streams.operators.contract import Record


def test_a_difference_that_rounds_to_nothing_has_no_minus() -> None:
    """As `+0.00%`; others keep their sign."""
    assert _row("defaults", "{:.2%}", [None, 0.00721, 0.00720]) == ("defaults", "-", "0.72%", "0.72%", "+0.00%")
    assert _row("p50_ms", "{:.1f}", [7.1, 6.1, 5.6])[-1] == "-0.5"


def written(folder: Path, policy: str = "exp4", *, spoilt: bool = False) -> Path:
    """Write the trace of a loop; spoilt, one of its answers is another than was given."""
    settings = {"joiner": {"window_s": 60.0, "early_s": 5.0}}
    trace = trace_of(loop(policy).driver)
    with TraceWriter(folder, TraceManifest("shop", "0", settings)) as writer:
        for topic in RECORDED:
            writer.expect(topic, {0: 0}, {0: 0})
            records = [*trace.records(topic)]
            writer.add(map(other, records) if spoilt and topic == topics.PREDICTIONS else records)
    return folder


def other(record: Record) -> Record:
    """Change the answer to one query."""
    prediction = CODEC.decode(Prediction, record.value)
    if prediction.query_id != "q9":
        return record
    return record._replace(value=CODEC.encode(prediction._replace(answer=8)))


def replay(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(skysail, ["replay", "--offline", *arguments])


def test_what_is_as_it_was_ends_well(tmp_path: Path) -> None:
    """It says how much was checked, and how fast."""
    done = replay(str(written(tmp_path / "trace")))

    assert done.exit_code == 0, done.output
    assert "60 queries of" in done.stdout
    assert "all is as it was" in done.stdout


def test_a_log_that_columns_have_written_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their draws, answers, joins and states come out of the kernels again, bit for bit."""
    pytest.importorskip("streams.columns.selection", reason="Skysail has been installed without a compiler")
    for name in ("_AT_ONCE", "_COLUMNAR"):
        monkeypatch.setattr(f"load.research.seeds.roles.{name}", 1.0)
    world = World(at_once(), SharedStore())
    outcome = virtual.run(world.run())
    with TraceWriter(tmp_path / "trace", TraceManifest("shop", "0", {"partitions": PARTITIONS})) as writer:
        for topic in RECORDED:
            places = world.broker.places(topic)
            writer.expect(topic, {number: 0 for _, number in places}, {number: 0 for _, number in places})
            for place in places:
                writer.add(world.broker.logs[place])

    done = replay(str(tmp_path / "trace"))

    assert outcome.by_columns > outcome.queries / 2
    assert min(world.broker.batched[topic] for topic in (topics.PREDICTIONS, topics.OBSERVATIONS)) > 0
    assert done.exit_code == 0, done.output
    assert "all is as it was" in done.stdout


def test_what_differs_is_printed_with_both_values_and_ends_with_1(tmp_path: Path) -> None:
    """By the query's id."""
    folder = str(written(tmp_path / "trace", spoilt=True))
    done = replay(folder)
    found = json.loads(replay(folder, "--json").stdout)

    assert done.exit_code == 1
    assert "predictions of q9:" in done.stdout
    assert "it is not as it was" in done.stdout
    assert found["different"]["predictions"] == 1
    assert {each["id"] for each in found["differences"]} >= {"q9"}


def test_a_change_is_shown_in_a_table_and_on_a_page(tmp_path: Path) -> None:
    """Figures of three columns, and a page that is whole in itself."""
    folder, page = str(written(tmp_path / "trace")), tmp_path / "page.html"
    done = replay(folder, "--set", "policy=thompson", "--html", str(page))
    found = json.loads(replay(folder, "--set", "policy=thompson", "--json").stdout)

    assert done.exit_code == 0, done.output
    assert "60 of 60 queries count" in done.stdout
    assert "share of good" in done.stdout
    assert "error, changed - unchanged: " in done.stdout
    assert "95% interval" in done.stdout
    assert page.read_text("utf-8").count("<polyline") == 4
    assert "95% interval" in page.read_text("utf-8")
    assert found["difference"]["low"] <= found["difference"]["mean"] <= found["difference"]["high"]
    assert found["difference"] == found["difference_over_time"][-1] | {"confidence": 0.95}
    assert found["changed"]["shares"]["good"] > found["changed"]["shares"]["bad"]


@pytest.mark.parametrize("change", ["policy", "policy=", "=1"])
def test_a_change_without_a_value_is_refused(tmp_path: Path, change: str) -> None:
    """The message says how to write it."""
    done = replay(str(written(tmp_path / "trace")), "--set", change)

    assert isinstance(done.exception, UsageError)
    assert "write NAME=VALUE" in str(done.exception)


def test_a_replay_goes_by_the_partitions_that_the_deployment_serves() -> None:
    """Somebody may have added some to the topics that were recorded; a manifest without settings does not say."""
    grown = {topics.OBSERVATIONS: RecordedTopic(topics.OBSERVATIONS, 6)}
    assert deployment(TraceManifest("sky", "0", {"partitions": 4}, grown)).joiner.partitions == 4
    assert deployment(TraceManifest("sky", "0", {}, grown)).joiner.partitions == 6
