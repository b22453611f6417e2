"""Comparing results: directions, tolerances, and what is only shown."""

from pathlib import Path

import pytest

from load import figures
from load.figures import SHOWN, Better, Figures, Kind
from load.harness.recorder import recorded
from load.results import results
from load.results.compare import Comparison
from load.results.compare import compare as compare_by
from load.results.results import Result

_DECLARED = Figures(
    recorded(),
    recorded("at_200_"),
    figures.PER_S("queries_per_s"),
    figures.RATIO_RATE("ratio_rate"),
    figures.CPU_US("cpu_us_per_query"),
    figures.ERROR("exp3_error"),
    figures.GAIN("gain_over_batch_1"),
)


def compare(base: Result, head: Result) -> Comparison:
    """Compare by figures of every kind."""
    return compare_by(base, head, _DECLARED)


def _result(**figures: float) -> Result:
    return Result("loop", figures)


@pytest.mark.parametrize(
    ("figure", "base", "head"),
    [
        ("lost", 0, 1),
        ("queries_per_s", 10_000, 7_000),
        ("ratio_rate", 0.3, 0.2),
        ("cpu_us_per_query", 50, 80),
        ("at_200_p99_ms", 20, 45),
        ("within_slo", 0.999, 0.98),
        ("exp3_error", 0.080, 0.085),
        ("gain_over_batch_1", 25, 15),
    ],
)
def test_a_change_for_the_worse_beyond_the_tolerance_fails(figure: str, base: float, head: float) -> None:
    """Each kind of figure has its direction; the same change the other way round is an improvement."""
    assert [change.figure for change in compare(_result(**{figure: base}), _result(**{figure: head})).worse] == [figure]
    assert not compare(_result(**{figure: head}), _result(**{figure: base})).worse


def test_noise_within_the_tolerance_passes() -> None:
    """Runs on a shared machine differ by 20 % without a cause."""
    assert not compare(
        _result(queries_per_s=10_000, at_200_p50_ms=9.0), _result(queries_per_s=8_200, at_200_p50_ms=12)
    ).worse


@pytest.mark.parametrize("name", ["queries_sent", "nobody_declares_it"])
def test_a_figure_without_a_direction_is_shown_and_never_fails(name: str) -> None:
    """Counts of how much was done say nothing about quality; nor does what no scenario declares."""
    (change,) = compare(_result(**{name: 10}), _result(**{name: 1})).changes
    assert not change.judged
    assert not change.worse


def test_an_exact_declaration_counts_before_a_pattern() -> None:
    """And of patterns the first that fits."""
    declared = Figures(SHOWN("*_in_time"), Kind("", Better.HIGHER)("wrong_in_time", "*_time"))
    assert [declared.of(name).better for name in ("wrong_in_time", "x_in_time", "x_time")] == [  # type: ignore[union-attr]  # all are declared
        Better.HIGHER,
        None,
        Better.HIGHER,
    ]
    assert declared.of("other") is None


def test_a_figure_that_is_gone_fails_and_a_new_one_does_not() -> None:
    """A lane that ends before it is measured has not held."""
    before, after = _result(a=1, b=1), _result(b=1)
    gone = compare(before, after)
    assert (gone.only_base, gone.worse, gone.failed) == (("a",), (), True)
    new = compare(after, before)
    assert (new.only_head, new.failed) == (("a",), False)


def test_the_short_form_is_not_compared_with_the_full_one() -> None:
    """It does less of everything."""
    short, full = (Result("loop", {}, {"form": form}) for form in ("short", "full"))
    with pytest.raises(ValueError, match="the forms were short and full"):
        compare(short, full)
    assert not compare(short, short).worse


def test_different_scenarios_cannot_be_compared() -> None:
    """A scenario's id means the same work for ever."""
    with pytest.raises(ValueError, match="different scenarios"):
        compare(Result("loop", {}), Result("floor", {}))


def test_runs_with_different_arrivals_cannot_be_compared() -> None:
    """A burst is no regression; results from before arrivals could be chosen are Poisson."""
    trace = Result("loop", {"lost": 0}, {"arrivals": "trace:azure.csv"})
    with pytest.raises(ValueError, match="were poisson and trace:"):
        compare(_result(lost=0), trace)
    assert not compare(trace, trace).worse


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    """What is written is read back equal; the environment lies beside it, not inside."""
    result = Result("loop", {"lost": 0}, {"seconds": 10}, {"windows": [{"start_us": 0}]}, ("one core",))
    path = results.write(result, tmp_path / "run")
    assert results.read(path) == result
    assert (path.parent / "environment.json").exists()
    assert "processor" not in path.read_text()


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    """With the path in the message."""
    path = tmp_path / "other.json"
    path.write_text('{"notes": [], "something": 1}')
    with pytest.raises(ValueError, match=r"other\.json"):
        results.read(path)


def test_counts_are_only_shown() -> None:
    """They follow from how long a run was."""
    assert not compare(_result(at_200_in_time=4_000), _result(at_200_in_time=1_000)).worse
