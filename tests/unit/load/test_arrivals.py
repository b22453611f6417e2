"""Arrivals are pure, seeded, and have the rate they are asked for."""

import itertools
from pathlib import Path

import pytest

from load.harness import arrivals
from streams.trace.stamps import read_stamps


def test_constant_arrivals_are_evenly_spaced() -> None:
    """At 200 a second a query is due every 5 ms, without drift from rounding."""
    offsets = list(itertools.islice(arrivals.constant(200), 1001))
    assert offsets[:3] == [0, 5_000, 10_000]
    assert offsets[-1] == 5_000_000


def test_constant_arrivals_do_not_drift_at_odd_rates() -> None:
    """Rounding each offset, not each gap, keeps three a second at three a second."""
    assert next(itertools.islice(arrivals.constant(3), 3000, None)) == 1_000_000_000


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    """Over 20,000 gaps the mean is right within 3 % and the coefficient of variation is about 1."""
    offsets = list(itertools.islice(arrivals.poisson(500, seed=1), 20_000))
    gaps = [b - a for a, b in itertools.pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(2_000, rel=0.03)
    assert deviation / mean == pytest.approx(1.0, abs=0.05)


def test_poisson_arrivals_never_run_backwards() -> None:
    """Also across the chunks they are drawn in."""
    offsets = list(itertools.islice(arrivals.poisson(1000, seed=2), 5_000))
    assert offsets == sorted(offsets)


def test_one_seed_gives_one_sequence() -> None:
    """The same seed repeats the run, another seed does not."""
    first, again, other = (list(itertools.islice(arrivals.poisson(100, seed), 50)) for seed in (7, 7, 8))
    assert first == again != other


def test_a_trace_keeps_its_proportions() -> None:
    """Time is divided; nothing is resampled."""
    assert list(arrivals.trace([1_000, 3_000, 3_000, 11_000], factor=2)) == [0, 1_000, 1_000, 5_000]


def test_an_empty_trace_has_no_arrivals() -> None:
    """Nothing in, nothing out."""
    assert list(arrivals.trace([], factor=2)) == []


def test_a_trace_that_runs_backwards_is_refused() -> None:
    """Silently sorted it would be another trace."""
    with pytest.raises(ValueError, match="backwards"):
        list(arrivals.trace([5, 1, 9], factor=1))


@pytest.mark.parametrize("rate", [0, -1.0])
def test_a_rate_must_be_positive(rate: float) -> None:
    """The fault is reported at the call, not at the first arrival."""
    with pytest.raises(ValueError, match="above 0"):
        arrivals.poisson(rate, seed=0)
    with pytest.raises(ValueError, match="above 0"):
        arrivals.constant(rate)
    with pytest.raises(ValueError, match="above 0"):
        arrivals.trace([0], rate)


def test_until_ends_an_endless_stream() -> None:
    """What lies at the end itself is outside."""
    assert list(arrivals.until(arrivals.constant(2), 1.5)) == [0, 500_000, 1_000_000]


def test_a_trace_that_is_named_is_played_at_the_rate_asked_for(tmp_path: Path) -> None:
    """Three gaps in a second become three gaps in a tenth of one; proportions stay."""
    path = tmp_path / "trace.csv"
    times = ("00:00:00", "00:00:00.5", "00:00:00.6", "00:00:01")
    path.write_text("TIMESTAMP\n" + "".join(f"2023-11-16 {time}\n" for time in times))
    found = arrivals.named(f"trace:{path}")
    assert found.name == "trace:trace.csv"
    assert list(found.at(30, 0)) == [0, 50_000, 60_000, 100_000]


def test_the_other_arrivals_have_names_too() -> None:
    """As the command line takes them."""
    assert list(itertools.islice(arrivals.named("constant").at(200, 1), 3)) == [0, 5_000, 10_000]
    assert arrivals.named("poisson").at is arrivals.poisson


@pytest.mark.parametrize("content", ["", "OTHER\n1\n", "TIMESTAMP\nsoon\n", "TIMESTAMP\n2023-11-16\n", None])
def test_what_is_no_trace_is_refused_with_what_it_must_be(tmp_path: Path, content: str | None) -> None:
    """Also one that is not there, and one that has no two different times."""
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match="is no trace"):
        arrivals.named(f"trace:{path}")


@pytest.mark.parametrize("text", ["uniform", "trace:", "trace", ""])
def test_arrivals_that_do_not_exist_are_refused(text: str) -> None:
    """The message says what there is."""
    with pytest.raises(ValueError, match="poisson, constant or trace:FILE"):
        arrivals.named(text)


def test_stamps_are_read_from_a_csv(tmp_path: Path) -> None:
    """Azure's traces write seven digits of a second; microseconds of them count."""
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.979960,4808\n2023-11-16 18:17:04.031960,3180\n")
    assert list(arrivals.trace(read_stamps(path), factor=1)) == [0, 52_000]
