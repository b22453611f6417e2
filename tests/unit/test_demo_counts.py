"""What the demo counts: phases, shares, errors, restarts of workers, hindsight, the report and its check."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from deploy.demo import check, report
from deploy.demo.breakable import broken
from deploy.demo.digits import digits, sample
from deploy.demo.hindsight import alone, best
from deploy.demo.meters import Meters
from deploy.demo.page import page
from deploy.demo.plots import smooth
from deploy.demo.snapshot import take
from deploy.demo.tally import Tally
from deploy.demo.view import line, screen
from load.recorder import Recorder
from schemas.records import (
    Decision,
    JoinStatus,
    ModelOutput,
    Observation,
    Outcome,
    Prediction,
    Report,
    Status,
)

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
MODELS = ("svc", "tree")
DECISION = Decision(chosen=(0,), state_version=0, state="digits", policy="exp3()", arms=MODELS, propensities=(0.5, 0.5))


def answered(query_id: str, model: str, answer: int, outcome: Outcome = Outcome.OK) -> Prediction:
    """Make a prediction of one model."""
    output = ModelOutput(model, "1", outcome, answer if outcome is Outcome.OK else None)
    status = Status.COMPLETE if outcome is Outcome.OK else Status.DEFAULT
    return Prediction(query_id, "digits", None, DECISION, status, None, answer, 1.0, (output,), 0, 0, 0, 0)


def observed(query_id: str, status: JoinStatus = JoinStatus.JOINED) -> Observation:
    """Make an observation."""
    return Observation(query_id, "digits", None, DECISION, (0.0, None), 0.0, 1, status, 0, 0)


def reported(instance: str, time_us: int, batches: float, rows: float, cap: float = 4.0) -> Report:
    """Make a worker's report."""
    counters = {"batches_total{model=svc}": batches, "batch_rows_total{model=svc}": rows}
    return Report(instance, "worker.svc", time_us, counters, {"batch_cap{model=svc}": cap})


def tally_of(count: int, seconds: float = 9.0) -> Tally:
    """Make a tally with `count` queries, evenly spread; the true label is always 1 and rows count up."""
    tally = Tally("digits", MODELS, 0, (seconds / 3, 2 * seconds / 3))
    for number in range(count):
        tally.asked(f"q{number}", number, 1, int(number * seconds / count * SECOND))
    return tally


def test_a_query_belongs_to_the_phase_it_was_meant_for() -> None:
    """Before, during and after are told by the intended send time."""
    tally = tally_of(9)
    assert [tally.questions[f"q{n}"].phase for n in (0, 2, 3, 5, 6, 8)] == [
        "before", "before", "during", "during", "after", "after",
    ]  # fmt: skip


def test_shares_and_errors_are_counted_by_model() -> None:
    """Who was asked, and who of them was wrong, by phase and by second."""
    tally = tally_of(9)
    tally.predictions([answered("q0", "svc", 1), answered("q1", "tree", 7), answered("q2", "svc", 1)])
    assert tally.share("svc", "before") == pytest.approx(2 / 3)
    assert tally.share("svc", "during") == 0.0
    assert tally.error == pytest.approx(1 / 3)
    assert tally.models["tree"].wrong_by_second == {1: 1}


def test_a_model_that_did_not_answer_is_asked_but_not_judged() -> None:
    """Its share counts, its error does not; the default output that stood in is judged as an answer."""
    tally = tally_of(9)
    tally.predictions([answered("q0", "svc", 0, Outcome.MISSING)])
    assert tally.models["svc"].asked["before"] == 1
    assert not tally.models["svc"].judged_by_second
    assert tally.error == 1.0


def test_foreign_predictions_and_observations_do_not_count() -> None:
    """Other clients may use the same topics."""
    tally = tally_of(1)
    tally.predictions([answered("not mine", "svc", 1)])
    tally.observations([observed("not mine"), observed("q0", JoinStatus.DEFAULT)])
    assert (tally.joined, sum(tally.judged_by_second.values())) == (0, 0)


def test_an_observation_that_was_written_twice_is_joined_once() -> None:
    """At least once is what the joiner promises."""
    tally = tally_of(2)
    tally.observations([observed("q0"), observed("q0"), observed("q1")])
    assert tally.joined == 2


def test_counters_survive_the_restart_of_a_process() -> None:
    """A worker that starts again counts from nought under its old name; nothing is lost and nothing doubled."""
    tally = tally_of(1)
    for batches, rows, second in ((10, 15, 0), (20, 40, 1), (5, 6, 2)):
        tally.reports([reported("worker.svc@1", second * SECOND, batches, rows)])
    assert tally.meters.count("batches_total", "svc") == 25
    assert tally.meters.count("batch_rows_total", "svc") == 46
    assert tally.models["svc"].batch_rows == pytest.approx(6 / 5)


def test_the_highest_cap_is_kept_with_its_second() -> None:
    """What a worker reported before the load does not count."""
    tally = tally_of(1)
    tally.reports(
        [reported("w", -2 * SECOND, 0, 0, cap=99), reported("w", SECOND, 1, 1, 6), reported("w", 2 * SECOND, 2, 2, 3)]
    )
    assert tally.models["svc"].cap_max == 6
    assert tally.models["svc"].cap_by_second == {1: 6, 2: 3}


def test_what_was_counted_before_the_load_does_not_count() -> None:
    """The warm-up's batches are no part of the run."""
    tally = tally_of(1)
    tally.reports([reported("w", -SECOND, 70, 90), reported("w", SECOND, 75, 100)])
    assert (tally.meters.count("batches_total", "svc"), tally.meters.count("batch_rows_total", "svc")) == (5, 10)


def test_gauges_add_up_over_processes() -> None:
    """Two replicas' queues are one queue to the reader of the screen."""
    meters = Meters()
    for instance, rows in (("a", 2.0), ("b", 3.0), ("a", 4.0)):
        meters.take(Report(instance, "worker", 0, {}, {"queue_rows{model=svc}": rows}))
    assert meters.gauge("queue_rows", "svc") == 7.0


def test_hindsight_judges_a_model_on_every_question() -> None:
    """The broken model is wrong in the middle third, the other one where its answers are."""
    tally = tally_of(9)
    right = np.ones(9, dtype=np.int64)
    half = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1])
    models = {
        "svc": alone(tally.questions.values(), right, broken(right)),
        "tree": alone(tally.questions.values(), half),
    }
    assert models["svc"].error == pytest.approx(3 / 9)
    assert models["svc"].wrong_by_second[3] == 1
    assert models["tree"].error == pytest.approx(4 / 9)
    assert best(models) == "svc"


def test_a_broken_model_is_always_wrong_where_it_was_right() -> None:
    """No digit is mapped to itself."""
    every = np.arange(10)
    assert not np.any(broken(every) == every)
    assert set(broken(every)) == set(every)


def test_no_model_is_trained_on_a_row_that_is_asked() -> None:
    """The split keeps them apart, is the same for a seed, and has every digit on both sides."""
    data, again = digits(3), digits(3)
    trained = {row.tobytes() for row in data.train_rows}
    shared = sum(row.tobytes() in trained for row in data.asked_rows)
    assert shared == 0
    assert np.array_equal(data.asked_rows, again.asked_rows)
    assert set(data.asked_labels) == set(data.train_labels) == set(range(10))
    assert np.array_equal(sample(5, 9, 1), sample(5, 9, 1))


def test_smoothing_sums_the_last_seconds() -> None:
    """At the beginning there are fewer to sum."""
    assert smooth(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist() == [1.0, 3.0, 5.0, 7.0]


def whole_run() -> tuple[Tally, Recorder]:
    """Make a run of 900 queries in which everything went well and the policy left the broken model."""
    tally, recorder = tally_of(900), Recorder(0, 100_000)
    for number, (query_id, question) in enumerate(tally.questions.items()):
        model = "tree" if question.phase == "during" or number % 10 == 0 else "svc"
        recorder.sent(query_id, question.second * SECOND, question.second * SECOND)
        recorder.answered(query_id, question.second * SECOND + 12_000, Status.COMPLETE, correct=True)
        tally.predictions([answered(query_id, model, 1)])
        tally.observations([observed(query_id)])
    tally.reports(
        [
            reported("w", SECOND, 300, 540),
            Report("l", "learner", SECOND, {"applied_total{application=digits}": 900}, {}),
        ]
    )
    return tally, recorder


def whole_report() -> tuple[dict[str, object], Tally, Recorder]:
    """Make that run's report."""
    tally, recorder = whole_run()
    figures = report.figures(tally, recorder, 900, {"svc": 0.33, "tree": 0.2})
    head = {"stamp": "now", "broker": "Apache Kafka 4.3.1", "redis": "redis", "seconds": 9.0, "rate": 100.0}
    return {**head, "policy": "exp3", "broken_model": "svc", "best_model": "tree", **figures}, tally, recorder


def test_the_report_has_every_figure() -> None:
    """The fields that scripts read."""
    content, _, _ = whole_report()
    expected = {
        "queries_sent": 900, "predictions_distinct": 900, "lost": 0, "duplicates": 0, "defaults": 0, "late": 0,
        "feedback_sent": 900, "observations_joined": 900, "observations_applied": 900, "dead_letters": 0,
        "error": 0.0, "error_best_single": 0.2, "within_slo": 1.0,
    }  # fmt: skip
    assert {name: content[name] for name in expected} == expected
    assert content["models"]["svc"] == {  # type: ignore[index]
        "share_before": 0.9, "share_during": 0.0, "share_after": 0.9, "batch_cap_max": 4, "batches": 300, "rows": 540,
    }  # fmt: skip


def test_the_page_is_one_file_with_every_plot() -> None:
    """Five pictures inline, nothing to fetch, nothing left unfilled."""
    content, tally, recorder = whole_report()
    judged = {name: alone(tally.questions.values(), np.ones(900, dtype=np.int64)) for name in MODELS}
    text = page(content, report.series(tally, recorder, judged, "svc"))
    assert text.count("<svg") == 5
    assert "src=" not in text
    assert "$" not in text.split("<svg")[0]
    assert "always asking svc would have meant 33.0%" in text


def test_the_check_finds_what_is_missing_and_what_is_wrong() -> None:
    """A good report of five models passes; each fault is one sentence."""
    content, _, _ = whole_report()
    svc = content["models"]["svc"]  # type: ignore[index]
    good = {
        **content,
        "models": dict.fromkeys("abcd", svc) | {"svc": svc},
        "error_by_model": dict.fromkeys("abcde", 0.2),
    }
    assert check.faults(good) == []
    assert check.faults({**good, "lost": 3}) == ["not true: every query was answered"]
    assert check.faults({**good, "broker": "a mock"}) == ["not true: the broker was Apache Kafka"]
    assert check.faults({name: value for name, value in good.items() if name != "late"}) == ["late is missing"]


def test_a_report_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """JSON holds all of it."""
    content, _, _ = whole_report()
    path = report.write_json(content, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == content == report.read_json(tmp_path)


def test_line_and_screen_show_the_broken_model() -> None:
    """In the middle third the model is marked, on a terminal and without one."""
    tally, recorder = whole_run()
    now = take(tally, recorder, seconds=9, feedback_sent=900, now_us=5 * SECOND, breaking="svc")
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(screen(now))
    assert "svc  BROKEN" in shown.get()
    assert "a model is broken" in shown.get()
    assert "svc (broken) 54%" in line(now)
    assert "joined 900 learnt 900 dead 0" in line(now)


def test_before_the_first_answer_there_is_nothing_to_divide() -> None:
    """An empty moment has no error and no rate."""
    now = take(tally_of(3), Recorder(0, 100_000), seconds=9, feedback_sent=0, now_us=-SECOND, breaking="svc")
    assert (now.error, now.rate, now.second) == (None, 0.0, 0.0)
    assert "error" in line(now)
