"""The pipelines of `pretzel`, who shares what, and what its page says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from load.harness.environment import environment
from load.models.pipelines import ATTENDEES, FAMILIES, SENTIMENT, Language, Operators
from load.research.pretzel import pretzel
from load.research.pretzel.pipeline_packages import SHARINGS, Packages, is_common
from load.research.pretzel.pipeline_process import Pipelines, family_of
from load.results.results import Result


@pytest.mark.parametrize(("sharing", "expected"), [(100, 250), (50, 124), (0, 0)])
def test_that_share_of_the_pipelines_has_the_common_operators(sharing: int, expected: int) -> None:
    """Of each family half of 125, rounded down, where it is half."""
    chosen = [number for number in range(250) if is_common(number, sharing)]
    assert len(chosen) == expected
    assert sum(number % 2 for number in chosen) * 2 == expected


def test_texts_and_rows_follow_from_their_seed() -> None:
    """The same seed gives the same, another one other words; both moods occur."""
    texts, good = Language(1).texts(40, 2)
    assert texts == Language(1).texts(40, 2)[0]
    assert not {*Language(1).words.tolist()} <= {*Language(2).words.tolist()}
    assert 0 < good.sum() < len(good)
    assert np.array_equal(Operators(ATTENDEES, 3).rows(5), Operators(ATTENDEES, 3).rows(5))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Return packages in a folder of their own."""
    return Packages(tmp_path_factory.mktemp("pretzel"), 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_pipelines_in_one_store_answer_as_scikit_learn_does(packages: Packages, family: str) -> None:
    """To the bit, loaded by a measuring process's own hands."""
    place, found = FAMILIES.index(family), []
    for way in ("sklearn", "alone", "shared"):
        pipelines = Pipelines(way)
        pipelines.rows(packages.rows())
        folder = packages.of(place + 1, 100, whole=way == "sklearn")[place]
        assert family_of(folder) == family
        assert len(pipelines.load([folder])) == 1
        found.append(pipelines.answers(folder))
    assert found[0] == found[1] == found[2]


def test_no_two_rows_that_are_asked_are_equal(packages: Packages) -> None:
    """So that no result of late makes a query faster than it is; batches from the same start are the same."""
    pipelines = Pipelines("shared")
    pipelines.rows(packages.rows())
    some = [pipelines._some(f"{SENTIMENT}-0", 3) for _ in range(300)]
    assert len({text for batch in some for text in batch}) == 900
    assert pipelines._some(f"{SENTIMENT}-0", 3, 7) == pipelines._some(f"{SENTIMENT}-2", 3, 7)
    rows = pipelines._some(f"{ATTENDEES}-1", 2)
    assert not np.array_equal(rows, pipelines._some(f"{ATTENDEES}-1", 2, 400))


def a_result() -> Result:
    """Return a result with all figures, of invented numbers."""
    figures = dict.fromkeys(
        [
            "memory_gain_over_processes",
            "memory_gain_over_staged",
            "memory_gain_over_sklearn",
            "memory_gain_over_alone",
            "different_answers",
            "compared_answers",
            "together_gain",
            "sklearn_cold_p50_ms",
            "sklearn_cold_p99_ms",
            "sklearn_cold_p99_cpu_ms",
            *(f"cold_{sharing}_p{point}_ms" for sharing in SHARINGS for point in ("50", "99", "99_cpu")),
            *(f"{family}_hot{end}" for family in FAMILIES for end in ("_us", "_sklearn_us", "_gain")),
        ],
        12.5,
    )
    ways = ("processes", "staged", "sklearn", "alone_0", *(f"shared_{sharing}" for sharing in SHARINGS))
    memory = [{"way": way, "pipelines": count, "pss_mib": 30.0} for way in ways for count in (10, 25)]
    work = [{"way": way, "pipelines": count, "per_s": 900.0} for way in ways for count in (10, 25)]
    return Result(pretzel.NAME, figures, {"pipelines": 25}, {"memory": memory, "work": work})


def test_the_page_names_missed_targets_and_shows_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its picture lies beside it, with a line for each way."""
    monkeypatch.setattr(pretzel, "png", lambda figure: figure)
    page, pictures = pretzel.SCENARIO.written(a_result(), environment()), pretzel.plots(a_result())
    assert "Target missed: different_answers is 12.5" in page
    assert all(f"]({name})" in page for name in pictures)
    drawn: Any = pictures["pretzel.png"]
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()].count("one process each, stages") == 1


def test_gains_are_of_the_most_processes_and_of_all_pipelines() -> None:
    """Nothing is multiplied: each gain divides two measurements of as many pipelines."""
    figures = {f"processes_{count}_pss_mib": 100.0 * count for count in (4, 10)}
    figures |= {f"staged_{count}_pss_mib": 25.0 * count for count in (4, 10)}
    figures |= {f"processes_{count}_work_per_s": 50.0 / count for count in (4, 10)}
    for way, mib in (("shared_100", 2.0), ("alone_0", 3.0), ("sklearn", 8.0)):
        figures |= {f"{way}_{count}_pss_mib": mib * count for count in (10, 25)}
        figures |= {f"{way}_{count}_work_per_s": 1_000.0 - count for count in (10, 25)}
    figures |= {f"{family}_hot{end}": us for family in FAMILIES for end, us in (("_us", 2.0), ("_sklearn_us", 9.0))}
    gains = pretzel._gains(figures, 25, (4, 10))
    assert gains["memory_gain_over_processes"] == 50.0
    assert gains["memory_gain_over_staged"] == 12.5
    assert (gains["memory_gain_over_sklearn"], gains["memory_gain_over_alone"]) == (4.0, 1.5)
    assert gains["processes_work_kept"] == 0.4
    assert gains["sentiment_hot_gain"] == 4.5
