"""What `skysail load run paper` makes of the results of its scenarios: one result, one page."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from load import registry
from load.errors import MissingDataError
from load.figures import Figures
from load.harness.system import Stage
from load.harness.workload import Rows
from load.research.batching import delayed, replicas
from load.research.harness.backlog import Answered, keys
from load.research.learning import figure8
from load.research.learning.replay import Replay
from load.research.paper import parts, run
from load.research.paper.paper_words import DIFFERENCES, SCENARIO
from load.results.results import Result
from load.scenarios.rate import overload
from schemas.records import ModelPredictions, Outcome, Prediction, Status, Tensor
from streams.topology import partition_of

MACHINE = {
    "cores_usable": 2,
    "processor": "a <processor>",
    "broker": "a broker",
    "python": "3.11",
    "load_average": (1.0, 2.0, 3.0),
}
WANTED: dict[str, float | str] = {"parts": "figure6 figure10", "load_before": 1.5}
REPLICAS = Result(
    replicas.NAME,
    {
        **{f"workers_{n}_{kind}per_s": 800.0 * n for n in replicas.COUNTS for kind in ("", "drained_")},
        **{f"scale_{n}": float(n) for n in replicas.COUNTS[1:]},
        "workers_4_seen": 4,
    },
    {"rows": 40},
)


def row(scenario: str, state: str = "measured", why: str = "") -> dict[str, object]:
    """Return what became of a scenario."""
    return {"scenario": scenario, "state": state, "why": why, "seconds": 1.0}


def test_every_figure_has_its_words_and_its_scenarios() -> None:
    """And a scenario's name has no underscore, which parts it from its figures."""
    assert set(parts.PARTS) == set(DIFFERENCES) == set(registry.find("paper").parts)
    assert {source for part in parts.PARTS.values() for source in part.sources} == set(parts.SOURCES)
    assert set(parts.SOURCES) <= set(registry.SCENARIOS)
    assert not any("_" in name for name in parts.SOURCES)


def test_results_come_back_from_the_one_that_holds_them() -> None:
    """Figures, parameters and series, each scenario's its own."""
    other = Result("recall", {"gain": 2.0}, {"queries": 5}, {"points": [{"x": 1}]})
    gathered = run.gather({"replicas": REPLICAS, "recall": other}, [row("replicas"), row("recall")], WANTED)
    assert run.scatter(gathered) == {"replicas": REPLICAS, "recall": other}
    assert gathered.figures["parts_measured"] == 2


def test_a_page_has_the_plot_the_published_number_and_what_is_missing() -> None:
    """Nothing in it is fetched from anywhere, and what comes from outside is escaped."""
    rows = [row("replicas"), row("personal", "skipped", "no <data>")]
    text = SCENARIO.written(run.gather({"replicas": REPLICAS}, rows, WANTED), MACHINE)
    assert text.count("<svg") == 1
    assert "3.95" in text
    assert "busy with something else" in text
    assert "reached workers_4_seen == 4" in text
    assert "no &lt;data&gt;" in text
    assert "a &lt;processor&gt;" in text
    assert "src=" not in text


async def test_a_part_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lacks its data, one breaks, one is measured; the same scenario runs once for two figures."""
    ran: list[str] = []

    def runs(name: str, error: Exception | None = None) -> SimpleNamespace:
        async def scenario(stage: Stage) -> Result:
            ran.append(name)
            assert stage.short
            if error is not None:
                raise error
            return REPLICAS

        return SimpleNamespace(NAME=name, FIGURES=Figures(), run=scenario)

    fakes = {
        "controllers": runs("controllers", RuntimeError("broken")),
        "batching": runs("batching", RuntimeError("broken")),
        "agreement": runs("agreement", MissingDataError("set SKYSAIL_DATA")),
        "replicas": runs("replicas"),
    }
    monkeypatch.setattr(run, "SOURCES", fakes)
    stage = Stage("", None, tmp_path, only=("figure3", "figure4", "figure6", "figure7"))  # type: ignore[arg-type]
    result = await run.run(stage)
    assert ran == ["controllers", "batching", "replicas", "agreement"]
    assert (result.figures["parts_failed"], result.figures["parts_skipped"]) == (2, 1)
    assert "RuntimeError: broken" in SCENARIO.written(result, MACHINE)


def test_workers_are_measured_while_all_of_them_are_busy() -> None:
    """From the last one's first batch to the first one's last."""
    batches = [Answered("a", 10, 10, 5_000, at_us) for at_us in (0, 1_000_000, 2_000_000, 3_000_000)]
    batches += [Answered("b", 10, 10, 5_000, at_us) for at_us in (1_000_000, 2_000_000)]
    assert replicas.busy_rate(sorted(batches, key=lambda batch: batch.at_us)) == 20.0
    assert replicas.busy_rate([]) == 0.0


def test_a_backlog_has_a_key_for_each_partition() -> None:
    """As Kafka's own clients place them."""
    assert [partition_of(key, 4) for key in keys()] == [0, 1, 2, 3]


def test_a_batch_in_two_records_counts_once() -> None:
    """Two reply partitions share a batch of four rows."""
    share = ModelPredictions(
        "m", "1", "w", ("a", "b"), (Outcome.OK,) * 2, Tensor.of(np.zeros(2, np.int64)), None, (0, 0), 8_000, 4, 4, 0
    )
    assert delayed.per_batch([share, share]) == {"rows_a_batch": 4.0, "model_per_s": 500.0}


def test_goodput_is_counted_by_priority() -> None:
    """In time and by a model; defaults and late answers are nobody's good."""
    ranked = overload.Ranked(Rows("slow", (Tensor.of(np.ones(1, np.float32)),), priorities=overload.PRIORITIES))
    asked = [ranked(index, 0).query for index in range(6)]
    assert [query.priority for query in asked] == [0, 1, 2, 0, 1, 2]
    statuses = [Status.DEFAULT, Status.COMPLETE, Status.COMPLETE] * 2
    answers = [
        Prediction(q.query_id, "slow", None, None, status, None, 0, 1.0, (), 0, 0, deadline_us=100, answered_us=90)
        for q, status in zip(asked, statuses, strict=True)
    ]
    ranked.take(answers[:3], now_us=100)
    ranked.take(answers[3:], now_us=101)
    assert ranked.sent == {0: 2, 1: 2, 2: 2}
    assert (ranked.good[0], ranked.good[1], ranked.good[2]) == (0, 1, 1)


def test_the_curves_of_a_failure_end_at_its_errors() -> None:
    """Each point is the error since the start, of answers and of models alone."""
    truth = np.arange(figure8.QUERIES, dtype=np.uint8) % 10
    rows, labels = figure8.shuffle_and_break(np.repeat(truth[:, None], len(figure8.MODELS), axis=1), truth)
    replay = Replay(figure8.POLICIES, rows, labels, seed=1)
    replay.wrong[:] = False
    replay.wrong[figure8.POLICIES.index("exp3"), :2] = True
    last = figure8.curves(replay)[-1]
    assert last["queries"] == figure8.QUERIES
    assert (last["exp3"], last["single"], last["knn3"]) == (2 / figure8.QUERIES, 0.0, 0.25)


def test_the_page_draws_overload_with_admission_beside_the_collapse_without_it() -> None:
    """Three lines and a bar for each priority, and in words what is kept."""
    lanes = ("admission", "adaptive", "without")
    figures = {f"{how}_at_{times}_goodput": 800.0 for how in lanes for times in overload.TIMES}
    figures |= {"without_at_3_goodput": 80.0, "kept": 0.95, "kept_adaptive": 0.93, "kept_without": 0.1}
    figures |= {f"ranked_at_3_priority_{each}_good_share": each / 4 for each in overload.PRIORITIES}
    results = {"overload": Result("overload", figures)}
    part = parts.PARTS["overload"]
    assert part.draw(results).startswith("<svg")
    (admitted, adaptive, without, kept) = part.rows(results)
    assert admitted[2] == adaptive[2] == "800/s at 1 x, 800/s at 3 x"
    assert (without[2], kept[2]) == ("800/s at 1 x, 80/s at 3 x", "95%, 93%, 10%")
