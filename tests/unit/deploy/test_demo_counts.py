"""What the demo counts: phases, shares, errors, batches, what was learnt, hindsight, and the report of it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from deploy.demo import report
from deploy.demo.models import Says, alone, best, broken, digits, repeating, sample, voting_error
from deploy.demo.page import page, smooth, story, trial
from deploy.demo.report import NOTES, DemoCounts, say
from deploy.demo.screen import INDENT, KEY, display, line, screen, take
from deploy.demo.tally import DemoTrial, Tally, tried
from load.harness.recorder import Recorder
from policies.registry import create
from schemas.records import (
    Decision,
    JoinStatus,
    ModelOutput,
    ModelPredictions,
    Observation,
    Outcome,
    Prediction,
    Status,
    Tensor,
)
from tests.histories import ARMS, served

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECOND = 1_000_000
MODELS = ("svc", "tree")
DECISION = Decision(chosen=(0,), state_version=0, state="digits", policy="exp3()", arms=MODELS, propensities=(0.5, 0.5))


TRIAL = DemoTrial("tree", "1", "2", share=0.2, begin_s=7.0, end_s=8.0)


def answered(query_id: str, model: str, answer: int, outcome: Outcome = Outcome.OK) -> Prediction:
    """Make a prediction of one model."""
    output = ModelOutput(model, "1", outcome, answer if outcome is Outcome.OK else None)
    status = Status.COMPLETE if outcome is Outcome.OK else Status.DEFAULT
    return Prediction(query_id, "digits", None, DECISION, status, None, answer, 1.0, (output,), 0, 0, 0, 0)


def observed(query_id: str, status: JoinStatus = JoinStatus.JOINED) -> Observation:
    """Make an observation."""
    return Observation(query_id, "digits", None, DECISION, (0.0, None), 0.0, 1, status, 0, 0)


def batch(*outcomes: tuple[str, Outcome], rows: int, cap: int = 4, queue: int = 0) -> ModelPredictions:
    """Make one record of a batch of svc; `rows` is the size of the whole batch."""
    ids, kinds = tuple(query_id for query_id, _ in outcomes), tuple(outcome for _, outcome in outcomes)
    answers = Tensor.of(np.zeros(len(outcomes), dtype=np.int64))
    waited = (0,) * len(outcomes)
    return ModelPredictions("svc", "1", "w", ids, kinds, answers, None, waited, 10, rows, cap, queue)


OK, EXPIRED = Outcome.OK, Outcome.EXPIRED


def tally_of(count: int, seconds: float = 9.0) -> Tally:
    """Make a tally with `count` queries, evenly spread; the true label is always 1 and rows count up."""
    tally = Tally("digits", MODELS, 0, (seconds / 3, 2 * seconds / 3), TRIAL)
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
    assert tally.share("svc", "during") is None
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


def test_a_batch_in_several_records_is_one_batch() -> None:
    """A worker writes a record for each reply partition, with the size of the whole batch in it."""
    tally = tally_of(9)
    tally.model_predictions(
        [batch(("q0", OK), ("q1", OK), rows=3), batch(("q2", OK), rows=3), batch(("q3", OK), rows=1)]
    )
    assert (tally.models["svc"].batches, tally.models["svc"].rows) == (2, 4)


def test_thousands_of_odd_batches_are_counted_exactly() -> None:
    """Sevenths do not add up to whole numbers in floating point; their number does."""
    tally = tally_of(7)
    tally.model_predictions([batch((f"q{n}", OK), rows=7) for n in range(7)] * 3000)
    assert (tally.models["svc"].batches, tally.models["svc"].rows) == (3000, 21000)


def test_expired_rows_were_not_predicted() -> None:
    """They may come with a batch or alone, in a record of no rows."""
    tally = tally_of(9)
    tally.model_predictions([batch(("q0", OK), ("q1", EXPIRED), rows=1), batch(("q2", EXPIRED), rows=0, cap=6)])
    assert (tally.models["svc"].batches, tally.models["svc"].rows) == (1, 1)
    assert tally.models["svc"].cap_max == 6


def test_an_output_that_nobody_predicted_for_its_query_was_remembered() -> None:
    """A worker has predicted the same image for the query before; whichever topic is read first."""
    tally = tally_of(9)
    tally.asked("again", 0, 1, SECOND)
    tally.predictions([answered("q0", "svc", 1), answered("again", "svc", 1)])
    assert tally.models["svc"].cached_by_second.total() == 2
    tally.model_predictions([batch(("q0", OK), rows=1)])
    assert tally.models["svc"].cached_by_second == {0: 0, 1: 1}
    assert tally.cached("svc") == 1


def test_an_output_that_came_from_nowhere_does_not_count_as_remembered() -> None:
    """Nobody has predicted this image, or only another version has: something is wrong, and the check must see it."""
    tally = tally_of(9)
    tally.asked("again", 0, 1, SECOND)
    tally.model_predictions([batch(("q0", OK), rows=1)._replace(version="2")])
    tally.predictions([answered("q0", "svc", 1), answered("again", "svc", 1), answered("q5", "svc", 1)])
    assert tally.cached("svc") == 0


def test_a_canary_is_judged_beside_the_version_before_while_both_answer() -> None:
    """What either answers before the trial, or the new one since it serves, is no part of the comparison."""
    tally = tally_of(90)
    tally.predictions([answered(f"q{number}", "tree", 7) for number in range(70)])
    tally.predictions([answered(f"q{number}", "tree", int(number < 74)) for number in range(70, 78)])
    new = [answered(f"q{number}", "tree", 1) for number in range(78, 83)]
    tally.predictions([p._replace(outputs=(p.outputs[0]._replace(version="2"),)) for p in new])
    done = tried(tally.models["tree"].versions, TRIAL)
    assert (done.answered, done.error, done.since) == (2, 0.0, 3)
    assert (done.beside, done.error_beside) == (8, 0.5)


def test_a_version_that_has_answered_nothing_has_no_error() -> None:
    """A run that was ended early says so."""
    assert tried({}, TRIAL) == (0, None, 0, None, 0)
    assert trial(whole_report(whole_run())) == (
        "tree 2 has not answered anything as a canary: on this machine it was not loaded in time."
    )


def test_the_report_says_what_came_of_the_canary() -> None:
    """How many queries it answered, and how well beside the version before."""
    content = whole_report(whole_run())
    content["canary"] |= {"answered": 61, "error": 0.016, "error_beside": 0.058, "answered_since": 90}
    assert trial(content) == (
        "tree 2, a canary for 20% of the queries to tree, answered 61 of them, 1.6% wrong (tree 1 meanwhile 5.8%);"
        " since it serves, it answered 90."
    )


def test_some_queries_ask_again_for_a_row_of_shortly_before() -> None:
    """As often as they are told to, never for one that is longer ago, and the same for a seed."""
    order = np.arange(3000)
    again = repeating(order, share=0.25, within=10, seed=1)
    assert np.array_equal(again, repeating(order, share=0.25, within=10, seed=1))
    assert 0.2 < float(np.mean(again != order)) < 0.3
    assert np.array_equal(repeating(order, share=0.0, within=10, seed=1), order)
    for place, row in enumerate(again):
        assert row == place or row in again[max(0, place - 10) : place]


def test_what_others_asked_does_not_count_as_rows() -> None:
    """The warm-up's batches are no part of the run; of a mixed batch, the share of ours is."""
    tally = tally_of(9)
    tally.model_predictions([batch(("warm", OK), rows=1, cap=99), batch(("q0", OK), ("warm", OK), rows=2)])
    assert (tally.models["svc"].rows, tally.models["svc"].cap_max) == (1, 4)


def test_caps_and_queues_are_kept_by_second() -> None:
    """The last cap and the longest queue of each second, by when the queries were meant to be sent."""
    tally = tally_of(9)
    tally.model_predictions([batch(("q1", OK), rows=1, cap=6, queue=5), batch(("q1", OK), rows=1, cap=3, queue=2)])
    assert tally.models["svc"].cap_by_second == {1: 3}
    assert tally.models["svc"].queue_by_second == {1: 5}
    assert tally.models["svc"].cap_max == 6


def test_what_is_learnt_is_read_off_the_decisions() -> None:
    """The state that decided says how many observations are in it; an older view takes nothing back."""
    tally = tally_of(9)
    for version in (3, 7, 5):
        tally.decided(DECISION._replace(state_version=version))
    tally.decided(DECISION._replace(state_version=90, state="another application"))
    tally.decided(None)
    assert tally.applied == 7


def test_hindsight_judges_a_model_on_every_question() -> None:
    """The broken model is wrong in the middle third, the other one where its answers are."""
    tally = tally_of(9)
    right = np.ones(9, dtype=np.int64)
    half = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1])
    models = {
        "svc": alone(tally.questions.values(), Says(right, broken(right))),
        "tree": alone(tally.questions.values(), Says(half)),
    }
    assert models["svc"].error == pytest.approx(3 / 9)
    assert models["svc"].wrong_by_second[3] == 1
    assert models["tree"].error == pytest.approx(4 / 9)
    assert best(models) == "svc"


def test_hindsight_lets_all_models_vote_and_learns_whom_to_trust() -> None:
    """Two that are always wrong, and agree, outvote the third until its weight is more than theirs together."""
    questions = tally_of(900).questions.values()
    right, wrong = np.ones(900, dtype=np.int64), np.zeros(900, dtype=np.int64)
    models = [Says(wrong), Says(right), Says(wrong)]
    first = voting_error(itertools.islice(questions, 3), models, create("exp4"))
    assert (first, voting_error([], models, create("exp4"))) == (1.0, 0.0)
    assert 0 < voting_error(questions, models, create("exp4")) < 0.02


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


def whole_run() -> DemoCounts:
    """Make a run of 900 queries in which everything went well and the policy left the broken model."""
    tally, recorder = tally_of(900), Recorder(0, 100_000)
    for number, (query_id, question) in enumerate(tally.questions.items()):
        model = "tree" if question.phase == "during" or number % 10 == 0 else "svc"
        recorder.sent(query_id, question.second * SECOND, question.second * SECOND)
        recorder.answered(query_id, question.second * SECOND + 12_000, Status.COMPLETE, correct=True)
        tally.predictions([answered(query_id, model, 1)])
        tally.model_predictions([batch((query_id, OK), rows=2)._replace(model=model)])
        tally.observations([observed(query_id)])
    tally.decided(DECISION._replace(state_version=900))
    return DemoCounts(tally, recorder, feedback_sent=900, reached_s={"broker": 1.0, "models": 2.0, "roles": 3.0})


def whole_report(ran: DemoCounts) -> dict[str, Any]:
    """Make a run's report."""
    figures = report.figures(ran, {"svc": 0.33, "tree": 0.2})
    head = {"stamp": "now", "broker": "Apache Kafka 4.3.1", "redis": "redis", "seconds": 9.0, "rate": 100.0}
    told = {"policy": "exp3", "broken_model": "svc", "best_model": "tree", "notes": NOTES, "interrupted": False}
    told |= {"error_voting": 0.125, "contexts": None, "what_if": report.what_if(ran.tally)}
    start = {"first_prediction_s": 3.5, "steps_s": dict(ran.reached_s), "roles_restarted": {}, "slo_ms": 100.0}
    return {**head, **start, **told, **figures}


def test_the_report_has_every_figure() -> None:
    """The fields that scripts read."""
    content = whole_report(whole_run())
    expected = {
        "queries_sent": 900, "predictions_distinct": 900, "lost": 0, "duplicates": 0, "defaults": 0, "late": 0,
        "feedback_sent": 900, "observations_joined": 900, "observations_applied": 900, "dead_letters": 0,
        "error": 0.0, "error_best_single": 0.2, "within_slo": 1.0,
    }  # fmt: skip
    assert {name: content[name] for name in expected} == expected
    assert content["models"]["svc"] == {
        "share_before": 0.9, "share_during": 0.0, "share_after": 0.9, "batch_cap_max": 4, "batches": 270, "rows": 540,
        "cached": 0,
    }  # fmt: skip


def test_every_counted_figure_says_where_it_comes_from() -> None:
    """Whoever reads the report need not read the code."""
    content = whole_report(whole_run())
    plain = {"stamp", "seconds", "rate", "policy", "broken_model", "best_model", "notes", "models", "slo_ms"}
    assert content.keys() - plain <= NOTES.keys()
    assert {name for row in content["models"].values() for name in row if not name.startswith("share_")} <= NOTES.keys()


def test_the_page_is_one_file_with_every_plot() -> None:
    """Six pictures inline, nothing to fetch, nothing left unfilled."""
    ran = whole_run()
    judged = {name: alone(ran.tally.questions.values(), Says(np.ones(900, dtype=np.int64))) for name in MODELS}
    text = page(whole_report(ran), report.series(ran.tally, ran.recorder, judged, "svc"), {})
    assert text.count("<svg") == 6
    assert "src=" not in text
    assert "$" not in text.split("<svg")[0]
    assert "always asking svc would have meant 33.0%" in text
    assert "and asking all 2 to vote (policy exp4), for 2 times the work, 12.5%." in text
    assert "records in all <code>&lt;topic&gt;.dlq</code>" in text
    assert "Had thompson decided instead of exp3," in text


def test_a_run_that_was_ended_early_tells_only_of_what_there_was() -> None:
    """No query was meant for a time after the end: there is no share, not a share of nought."""
    ran = whole_run()
    for phase in ("during", "after"):
        ran.tally.asked_by_phase[phase] = 0
    content = {**whole_report(ran), "interrupted": True, "seconds_run": 3.0}
    assert content["models"]["svc"]["share_after"] is None
    assert story(content).startswith(
        "Ended early, after 3 s. svc was asked 90% of the time until it broke. The answers"
    )


def test_the_summary_names_the_figures_and_both_files(tmp_path: Path) -> None:
    """What somebody reads who looks at nothing else."""
    console = Console(width=100, force_terminal=False)
    with console.capture() as shown:
        say({**whole_report(whole_run()), "roles_restarted": {"joiner": 2}}, tmp_path, console)
    words = shown.get()
    assert "first prediction after 3.5 s (broker 1.0, models 2.0, roles 3.0)" in words
    assert "900 sent, 900 joined, 900 learnt; dead letters 0" in words
    assert f"{tmp_path / 'report.json'}\n" in words
    assert f"{tmp_path / 'report.html'}\n" in words
    assert f"joiner 2 times; why is in {tmp_path / 'logs'}" in words


def test_another_policy_is_judged_by_the_runs_own_log() -> None:
    """As `skysail evaluate` judges it: what it would have cost, between which bounds, of how many decisions."""
    found = report.what_if(logged(served("epsilon_greedy(epsilon=0.5)", 1_500)))
    assert found["low"] < found["value"] < found["high"] < found["served"]
    assert (found["decisions"], found["policy"]) == (1_500, "thompson(gamma=0.01)")
    shown = f"{found['value']:.1%} would have been wrong [{found['low']:.1%}, {found['high']:.1%}]"
    assert found["sentence"] == (
        f"Had thompson decided instead of epsilon_greedy, {shown}, not {found['served']:.1%} (doubly robust, 1,500"
        " decisions)."
    )


def test_a_log_that_says_too_little_gives_no_number() -> None:
    """Neither a few decisions nor none at all are an estimate."""
    few = report.what_if(logged(served("epsilon_greedy(epsilon=0.5)", 100)))
    assert (few["value"], few["decisions"]) == (None, 100)
    assert re.search(r"not to be said of 100 decisions; \d+ effective samples, 200 are needed", few["sentence"])
    assert report.what_if(logged(()))["sentence"].endswith("cannot be said: no feedback was joined.")


def logged(seen: Sequence[Observation]) -> Tally:
    """Return a tally that has read these observations of its own queries."""
    tally = Tally("shop", ARMS, 0, (1.0, 2.0), TRIAL)
    for each in seen:
        tally.asked(each.query_id, 0, 1, each.predicted_us)
    tally.observations(seen)
    return tally


def test_after_a_failure_all_logs_are_in_the_report_folder(tmp_path: Path) -> None:
    """Broker and Redis write elsewhere, into what is removed; where nothing was started nothing is made."""
    scratch, folder = tmp_path / "scratch", tmp_path / "report"
    (scratch / "kafka").mkdir(parents=True)
    assert report.keep_logs(scratch, folder) is None
    (scratch / "kafka" / "kafka.log").write_text("why", encoding="utf-8")
    assert report.keep_logs(scratch, folder) == folder / "logs"
    assert (folder / "logs" / "kafka.log").read_text(encoding="utf-8") == "why"


def test_line_and_screen_show_the_broken_model() -> None:
    """In the middle third the model is marked, on a terminal and without one."""
    ran = whole_run()
    now = take(ran.tally, ran.recorder, seconds=9, feedback_sent=900, now_us=5 * SECOND, breaking="svc")
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(screen(now))
    assert "svc  BROKEN" in shown.get()
    assert "svc answers wrongly" in shown.get()
    assert "900 of 900" in shown.get()
    assert "svc (broken) 54% 0.0% 4 2.0 0 | tree 46% 0.0% 4 2.0 0" in line(now)
    assert "joined 900 learnt 900 dead letters 0" in line(now)
    assert "p50/p95/p99 12/12/12 ms cached 0%" in line(now)


@pytest.mark.parametrize(("second", "words"), [(3, "from 7 s"), (7, "canary 20%"), (9, "serves")])
def test_line_and_screen_say_what_the_new_version_does(second: int, words: str) -> None:
    """It waits, gets its share, or has taken over."""
    ran = whole_run()
    now = take(ran.tally, ran.recorder, seconds=9, feedback_sent=900, now_us=second * SECOND, breaking="svc")
    console = Console(width=100, force_terminal=False)
    with console.capture() as shown:
        console.print(screen(now))
    assert words in shown.get()
    assert line(now).endswith(f"| tree 2 {words} 0")


def test_figures_of_the_moment_forget_what_is_longer_ago() -> None:
    """Latency, error, queue and batch size are of the last seconds, not of the whole run."""
    tally, recorder = tally_of(20, seconds=20), Recorder(0, 100_000)
    for query_id, question in tally.questions.items():
        slow = question.second < 10
        recorder.sent(query_id, question.second * SECOND, question.second * SECOND)
        recorder.answered(query_id, question.second * SECOND + (90_000 if slow else 10_000), Status.COMPLETE)
        tally.predictions([answered(query_id, "svc", 7 if slow else 1)])
        tally.model_predictions([batch((query_id, OK), rows=4 if slow else 1, queue=9 if slow else 0)])
    then, now = (
        take(tally, recorder, seconds=20, feedback_sent=0, now_us=second * SECOND, breaking="tree")
        for second in (10, 19)
    )
    assert (then.latency_ms["p99"], now.latency_ms["p99"]) == (90.0, 10.0)
    assert (then.error, now.error) == (1.0, 0.0)
    svc = now.models[0]
    assert (then.models[0].queue_rows, svc.queue_rows) == (9, 0)
    assert (then.models[0].batch_rows, svc.batch_rows) == (4.0, 1.0)
    assert svc.batch_cap == 4


def test_before_the_first_answer_there_is_nothing_to_divide() -> None:
    """An empty moment has no error, no latency and no rate."""
    now = take(tally_of(3), Recorder(0, 100_000), seconds=9, feedback_sent=0, now_us=-SECOND, breaking="svc")
    assert (now.error, now.rate, now.second, now.latency_ms) == (None, 0.0, 0.0, {})
    assert "error – p50/p95/p99 –/–/– ms" in line(now)  # noqa: RUF001 - the dash that is shown


def test_without_a_terminal_no_line_is_wider_than_a_screen() -> None:
    """Five models fit into lines of 160 characters, each model as a whole in one of them."""
    ran = whole_run()
    now = take(ran.tally, ran.recorder, seconds=9, feedback_sent=900, now_us=5 * SECOND, breaking="svc")
    model = replace(now.models[0], name="boosting", batch_rows=123.4, batch_cap=1024)
    shown = line(replace(now, models=(model,) * 5, in_time=123_456, joined=123_456, applied=123_456))
    assert all(len(text) <= 160 for text in (*shown.splitlines(), *KEY.splitlines()))
    assert shown.count("boosting (broken) 54% 0.0% 1024 123.4 0") == 5


def test_without_a_terminal_each_second_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Looking more often, or after the end, says nothing twice."""
    ran = whole_run()
    with display(Console(force_terminal=False)) as show:
        for now_us in (0, 500_000, SECOND, SECOND + 1, 2 * SECOND, 9 * SECOND, 10 * SECOND, 12 * SECOND):
            show(take(ran.tally, ran.recorder, seconds=9, feedback_sent=900, now_us=now_us, breaking="svc"))
    out = capsys.readouterr().out
    assert out.startswith(KEY)
    lines = [text for text in out.removeprefix(KEY).splitlines() if text and not text.startswith(INDENT)]
    assert [text.split(" s ")[0].strip() for text in lines] == ["1", "2", "9"]


def test_a_machine_that_was_too_slow_is_said_to_be_one() -> None:
    """Most answers by default say nothing about the models."""
    content = {**whole_report(whole_run()), "queries_sent": 100, "defaults": 92, "rate": 100.0}
    assert story(content).startswith("92% of the answers were the default output: this machine could not keep up")
