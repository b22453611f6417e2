"""One slow model among three: what the models say, how long they take, what is made of the answers."""

import time

import numpy as np

from load.research.models.slow import InLine, InThreads, dawdling, first, second
from load.research.peers import trio
from load.research.peers.trio import figures, summary
from load.results.results import Result

ENVIRONMENT = {"cores_usable": 2, "processor": "some processor", "broker": "Apache Kafka", "python": "3.11"}
ROWS = np.array([[1, 2, 2, 0], [3, 3, 4, 0], [5, 6, 7, 0]], np.float32)


def stretch(system: str, how: str, in_time: float) -> dict[str, object]:
    """Return the row of one stretch."""
    counts = {"lost": 1, "duplicates": 0, "wrong": 0}
    return {
        "system": system,
        "label": system,
        "how": how,
        "goodput_per_s": 100 * in_time,
        "share_in_time": in_time,
        **counts,
    }


def test_models_say_what_the_row_says() -> None:
    """The offline truth is a column."""
    assert [model(ROWS).tolist() for model in (first, second, dawdling)] == [[1, 3, 5], [2, 3, 6], [2, 4, 7]]


def test_a_batch_is_as_late_as_its_slowest_row() -> None:
    """The dawdling is real time."""
    rows = ROWS.copy()
    rows[1, 3] = 20
    started_s = time.monotonic()
    dawdling(rows)
    assert time.monotonic() - started_s >= 0.02


def test_in_line_most_models_decide() -> None:
    """Where no two agree, the first one's answer stands; of two models it always does."""
    assert InLine(3).predict(ROWS).tolist() == [2, 3, 5]
    assert InLine(2).predict(ROWS).tolist() == [1, 3, 5]


def test_in_threads_a_model_that_takes_too_long_is_left_out() -> None:
    """The others answer as if there were no third; one that is prompt is heard."""
    late = ROWS.copy()
    late[0, 3] = 200
    assert InThreads(30.0).predict(ROWS).tolist() == InLine(3).predict(ROWS).tolist()
    assert InThreads(0.0).predict(late).tolist() == InLine(2).predict(ROWS).tolist()


def test_what_is_kept_compares_medians_of_shares() -> None:
    """A busy round decides nothing."""
    rows = [stretch("a", "without", share) for share in (0.5, 1.0, 1.0)]
    rows += [stretch("a", "with", share) for share in (0.8, 0.8, 0.1)]
    found = figures(summary(rows))
    assert found["a_kept"] == 0.8
    assert (found["a_without_goodput_per_s"], found["a_with_lost"]) == (100.0, 3)


def test_the_page_shows_what_is_kept() -> None:
    """Figures that a system has not are left empty."""
    systems = summary([stretch("a", "without", 1.0), stretch("a", "with", 0.98)])
    series = {"systems": systems, "left_out": [{"label": "b", "why": "it ended"}]}
    text = trio.SCENARIO.written(Result("trio", figures(systems), {"rate": 100.0}, series), ENVIRONMENT)
    assert "| a | 100 | 98 | 0.980 |  |  |  |  | 2 |" in text
    assert "| b | it ended |" in text
