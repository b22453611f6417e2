"""What the page and `skysail model list` tell of hosts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deploy.cli.versions import print_versions
from deploy.placement.whereabouts import Whereabouts
from schemas.records import Model, Profile
from streams.control.page.hosts import HeardProcess, host_rows
from streams.operators.statistics import as_label

if TYPE_CHECKING:
    import pytest

MIB = 1 << 20
COUNTERS = {"host_loads_total": 7.0, "host_evictions_total": 3.0, "host_refused_total": 2.0}
GAUGES = {
    "host_known_models": 3.0,
    "host_resident_models": 1.0,
    "host_resident_bytes": 2.5 * MIB,
    "host_budget_bytes": 4.0 * MIB,
    "resident{model=fr,version=2}": 1.0,
    "host_last_eviction_idle_s{model=de,needed_by=fr}": 12.0,
    f"taken_out{{model=it,version=1,reason={as_label('it ended the process')}}}": 2.0,
}
HOST = HeardProcess("host.small@1", "host.small", COUNTERS, GAUGES)


def test_a_host_tells_what_is_in_memory_and_what_had_to_go() -> None:
    """Workers are none."""
    (row,) = host_rows([HOST, HeardProcess("worker.de@1", "worker.de", {}, {})])
    assert (row["pool"], row["known"], row["resident"], row["models"]) == ("small", 3, 1, ["fr 2"])
    assert (row["loads"], row["evictions"], row["refused"], row["ends"]) == (7, 3, 2, 0)
    assert row["evicted"] == "de, which had not been used for 12 s, to make room for fr"
    assert row["out"] == [{"name": "it", "version": "1", "times": 2, "reason": "it ended the process"}]


def test_a_model_may_make_room_because_others_grew() -> None:
    """No other one needed it."""
    gauges = {"host_last_eviction_idle_s{model=de,needed_by=memory}": 0.4}
    (row,) = host_rows([HOST._replace(gauges=gauges)])
    assert row["evicted"] == "de, which had not been used for 0 s, as others took more than was reckoned"


def test_a_host_tells_what_batches_take_as_predicted_and_as_they_were() -> None:
    """Models with the most batches come first; one whose times are from before a restart has no share yet."""
    gauges = {
        "host_batch_p99_us{model=fr,rows=4}": 5_000.0,
        "host_batch_p99_us{model=fr,rows=1}": 2_000.0,
        "host_batch_p99_us{model=de,rows=1}": 1_500.0,
        "host_load_p99_us{model=fr}": 9_000.0,
    }
    counters = {
        "host_predicted_batches_total": 10.0,
        "host_predicted_too_short_total": 1.0,
        "host_predicted_too_long_total": 6.0,
        "host_model_predicted_batches_total{model=fr}": 10.0,
        "host_model_predicted_too_short_total{model=fr}": 1.0,
        "host_model_predicted_too_long_total{model=fr}": 6.0,
        "host_model_predicted_us_total{model=fr}": 30_000.0,
        "host_model_predicted_actual_us_total{model=fr}": 20_000.0,
    }
    (row,) = host_rows([HOST._replace(counters=counters, gauges=gauges)])
    assert (row["predicted"], row["longer"], row["shorter"]) == (10, 0.1, 0.6)
    first, second = row["times"]
    assert first == {
        "name": "fr",
        "sizes": {1: 2.0, 4: 5.0},
        "load_ms": 9.0,
        "batches": 10,
        "predicted_ms": 3.0,
        "actual_ms": 2.0,
        "longer": 0.1,
        "shorter": 0.6,
    }
    assert (second["name"], second["sizes"], second["batches"], second["longer"]) == ("de", {1: 1.5}, 0, None)


def test_a_model_is_shown_with_what_its_batches_took(capsys: pytest.CaptureFixture[str]) -> None:
    """By the topic of profiles, which outlives the host."""
    model = Model("fr", "2", "function", "models/fr", "", "label", None, ())
    kept = Profile("fr", "2", (1, 3), (2_000, 5_120), 9_000, 3 * MIB)
    print_versions([(model, model)], Whereabouts(), as_json=False, profile=kept)
    said = capsys.readouterr().out
    assert "version 2 in its host: each size by the longest of its last ten batches" in said
    assert "5.12" in said
    assert said.splitlines()[-1] == "loading takes 9.0 ms, and it takes 3.0 MiB in memory"
    print_versions([(model, model)], Whereabouts(), as_json=True, profile=kept)
    assert json.loads(capsys.readouterr().out)[0]["profile"]["p99_us"] == [2_000, 5_120]


def test_the_list_of_models_says_it_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A line a host, and what is worth knowing below it."""
    model = Model("fr", "2", "function", "models/fr", "", "label", None, ())
    print_versions([(model, model)], Whereabouts(), as_json=False, hosts=host_rows([HOST]))
    assert capsys.readouterr().out.splitlines()[2:] == [
        (
            "host small (host.small@1): 1 of 3 models in memory, 2.5 of 4 MiB; 7 loads, 3 to make room for another "
            "one, 2 rows refused as they could not be in time"
        ),
        "  in memory: fr 2",
        "  unloaded last: de, which had not been used for 12 s, to make room for fr",
        "  it 1 is taken out (2 times in a row): it ended the process",
    ]
