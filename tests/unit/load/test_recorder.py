"""The recorder counts every query once, from the time it was meant to be sent."""

import pytest

from load.harness.recorder import Recorder
from schemas.records import Status

SLO_US = 100_000


@pytest.fixture
def recorder() -> Recorder:
    """A recorder that starts at 0 with an objective of 100 ms."""
    return Recorder(start_us=0, slo_us=SLO_US)


def test_latency_counts_from_the_intended_send_time(recorder: Recorder) -> None:
    """A query that was sent 40 ms late and answered 10 ms later took 50 ms."""
    recorder.sent("a", intended_us=0, now_us=40_000)
    recorder.answered("a", 50_000, Status.COMPLETE)
    assert recorder.latency_ms()["p50"] == pytest.approx(50, rel=0.001)
    assert recorder.figures()["sender_late_max_ms"] == pytest.approx(40, rel=0.001)


def test_a_backlog_is_sent_at_once_and_nothing_of_it_is_late(recorder: Recorder) -> None:
    """Each query counts by itself, in the window in which all were sent."""
    recorder.all_sent(["a", "b"], 1_200_000)
    recorder.answered("a", 1_250_000, Status.COMPLETE)
    figures = recorder.figures()
    assert (figures["queries_sent"], figures["in_time"], figures["lost"]) == (2, 1, 1)
    assert (recorder.latency_ms()["max"], figures["sender_late_max_ms"]) == (pytest.approx(50, rel=0.001), 0.001)
    assert [(row["start_us"], row["sent"]) for row in recorder.windows()] == [(1_000_000, 2)]


def test_each_query_is_in_time_default_or_late(recorder: Recorder) -> None:
    """A partial answer in time is in time; a default one is not; neither is a late one."""
    for query_id in ("complete", "partial", "default", "late", "lost"):
        recorder.sent(query_id, 0, 0)
    recorder.answered("complete", 1_000, Status.COMPLETE)
    recorder.answered("partial", 99_000, Status.PARTIAL)
    recorder.answered("default", 99_000, Status.DEFAULT)
    recorder.answered("late", 100_001, Status.COMPLETE)
    figures = recorder.figures()
    counted = {name: figures[name] for name in ("in_time", "defaults", "late", "lost", "within_slo")}
    assert counted == {"in_time": 2, "defaults": 1, "late": 1, "lost": 1, "within_slo": 0.4}


def test_a_second_answer_is_a_duplicate_and_changes_nothing_else(recorder: Recorder) -> None:
    """Only the first answer of an id counts for latency, error and status."""
    recorder.sent("a", 0, 0)
    assert recorder.answered("a", 1_000, Status.COMPLETE, correct=True)
    assert not recorder.answered("a", 500_000, Status.DEFAULT, correct=False)
    figures = recorder.figures()
    assert (figures["duplicates"], figures["predictions_distinct"], figures["late"], figures["error"]) == (1, 1, 0, 0)


def test_answers_to_others_are_counted_apart(recorder: Recorder) -> None:
    """Another client's queries on the same topic are no duplicates of ours."""
    assert not recorder.answered("stranger", 1_000, Status.COMPLETE)
    assert (recorder.foreign, recorder.duplicates, recorder.open) == (1, 0, 0)


def test_error_is_over_answers_whose_truth_is_known(recorder: Recorder) -> None:
    """An answer without a label is neither right nor wrong."""
    for query_id, correct in (("a", True), ("b", False), ("c", None)):
        recorder.sent(query_id, 0, 0)
        recorder.answered(query_id, 1_000, Status.COMPLETE, correct=correct)
    assert recorder.figures()["error"] == 0.5


def test_without_truth_there_is_no_error_figure(recorder: Recorder) -> None:
    """An error of 0 would claim what nobody checked."""
    recorder.sent("a", 0, 0)
    recorder.answered("a", 1_000, Status.COMPLETE)
    assert "error" not in recorder.figures()


def test_windows_belong_to_the_intended_send_time(recorder: Recorder) -> None:
    """An answer that comes in the next second counts in the second its query was meant for."""
    recorder.sent("a", 900_000, 900_000)
    recorder.sent("b", 1_100_000, 1_100_000)
    recorder.answered("a", 1_950_000, Status.COMPLETE)
    first, second = recorder.windows()
    assert (first["start_us"], first["answered"], first["late"], first["p50_ms"]) == (0, 1, 1, 1050.0)
    assert (second["start_us"], second["sent"], second["answered"], second["p50_ms"]) == (1_000_000, 1, 0, None)


def test_recent_quantiles_are_those_of_some_windows(recorder: Recorder) -> None:
    """Windows count from the start by the intended send time; where nothing was answered there is nothing to tell."""
    for second, latency_us in enumerate((10_000, 20_000, 90_000)):
        recorder.sent(f"q{second}", second * 1_000_000, second * 1_000_000)
        recorder.answered(f"q{second}", second * 1_000_000 + latency_us, Status.COMPLETE)
    assert recorder.recent_ms(0, 2)["p50"] == pytest.approx(15)
    assert recorder.recent_ms(2, 3) == {"p50": 90.0, "p95": 90.0, "p99": 90.0}
    assert recorder.recent_ms(-5, 0) == recorder.recent_ms(7, 9) == {}


def test_p999_is_of_ten_thousand_answers_or_more(recorder: Recorder) -> None:
    """Of fewer it would rest on less than ten of them."""
    for number in range(10_000):
        recorder.sent(str(number), 0, 0)
        if number == 9_999:
            assert "p999" not in recorder.latency_ms()
        recorder.answered(str(number), 1_000, Status.COMPLETE)
    assert recorder.latency_ms()["p999"] == pytest.approx(1, rel=0.001)
