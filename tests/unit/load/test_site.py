"""Scenario `site`: what it computes from measured lanes, and the page that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.harness.system import Brokers, Stage, no_brokers
from load.research.operation import site, site_tables
from load.results.results import Result
from schemas import topics
from workers.simulation.calibration import Calibration
from workers.simulation.legs import Leg, Legs

if TYPE_CHECKING:
    from pathlib import Path

MODELS = ["a", "b"]
STORED = {topics.QUERIES: 400.0, topics.PREDICTIONS: 300.0, topics.OBSERVATIONS: 70.0, topics.model_queries("a"): 90.0}


def lanes() -> dict[str, float]:
    """Return figures of all lanes; one with TLS costs half as much again, three brokers twice as much."""
    found: dict[str, float] = {}
    for lane in site.LANES:
        for point in (f"at_{site.RATE}", "backlog"):
            found |= {f"{lane}_{point}_{role}_cpu_us": 20.0 * (1.5 if lane == "tls" else 1.0) for role in site.ROLES}
            found[f"{lane}_{point}_broker_cpu_us"] = {"three": 40.0, "tls": 30.0}.get(lane, 20.0)
        more = ("processes", "in_bytes", "out_bytes", "stored_bytes", "learnt_per_s", "lost", "duplicates")
        found |= dict.fromkeys((f"{lane}_{name}" for name in more), 8.0)
        found |= {f"{lane}_at_{site.RATE}_{name}": 5.0 for name in ("p50_ms", "p99_ms", "defaults")}
    return found


def test_each_lane_is_set_beside_the_one_that_differs_in_one_thing() -> None:
    """Three brokers and TLS are beside `several`, which is beside `one`."""
    found = site._ratios(lanes())
    assert found["several_backlog_roles_cpu_ratio"] == 1
    assert found["three_backlog_broker_cpu_ratio"] == 2
    assert found["tls_backlog_roles_cpu_ratio"] == pytest.approx(1.5)


def test_who_reads_a_topic_is_what_the_topology_says() -> None:
    """Predictions have clients besides the joiner; nobody else reads a model's queries than its workers."""
    found = site.read_by(MODELS)
    assert (found[topics.PREDICTIONS], found[topics.model_queries("a")]) == (2, 1)


def test_only_what_grows_with_queries_counts_as_stored(tmp_path: Path) -> None:
    """All copies are added up; reports and other deployments are left out."""
    for folder in ("p.queries-0", "p.queries-1", "p.models.a.queries-0", "p.reports-0", "other.queries-0"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.log").write_bytes(b"12345")
        (tmp_path / folder / "0.index").write_bytes(b"1")
    brokers = Brokers("", {}, {}, (tmp_path, tmp_path))
    assert site._stored(brokers, "p", ["a"]) == {topics.QUERIES: 20, topics.model_queries("a"): 10}


def test_the_page_says_what_breaks_first_and_what_was_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells measured, computed and simulated apart, and misses no target where nothing was lost."""
    monkeypatch.setattr(site, "_SHORT_SIMULATED_S", 1.2)
    figures = lanes()
    figures |= site._ratios(figures) | dict.fromkeys((f"{lane}_{n}" for lane in site.LANES for n in _FAULTS), 0.0)
    costs, planned = site.site_costs(figures, STORED, MODELS), site.planned(MODELS)
    leg = Leg.constant(1_000)
    learnt = Calibration(Legs(leg, leg, leg, leg), {name: {1: [100.0], 64: [400.0]} for name in MODELS})
    stage = Stage("", no_launch, tmp_path, short=True)
    figures |= site._simulated(stage, learnt, costs["backlog"], planned)
    result = Result(site.NAME, figures, {"form": "short"}, site._sized(costs, planned))
    text = site_tables.SCENARIO.written(result, {"cores_usable": 2, "processor": "a processor", "broker": "a broker"})
    assert all(f"## {part}\n" in text for part in ("Measured", "Computed", "Simulated"))
    assert f"**First to break: {result.series['breaks'][0]['what']}" in text
    assert "Target missed" not in text
    assert [name for name in figures if site.FIGURES.of(name) is None] == []


_FAULTS = ("lost", "duplicates")


def no_launch(deployment: object) -> object:
    """Start nothing."""
    raise NotImplementedError(deployment)


def test_a_stage_without_brokers_says_so() -> None:
    """A scenario that wants some is told, not left waiting."""
    with pytest.raises(LookupError, match="3 were wanted with TLS"):
        no_brokers(3, tls=True)
