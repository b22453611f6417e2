"""The uniform draw and the inverse CDF."""

from __future__ import annotations

import pytest

from policies.draw import pick, uniform, version


def test_draw_is_pinned() -> None:
    """The draw of an id never changes between releases: logs are replayed with it."""
    assert uniform("query-1") == 0.6102927951446159
    assert uniform("query-1", "explore") != uniform("query-1")


def test_draws_are_uniform() -> None:
    """Ten thousand consecutive ids fill ten bins evenly (chi-square, 9 degrees, 0.999 quantile 27.9)."""
    bins = [0] * 10
    for number in range(10_000):
        bins[int(uniform(f"q{number}") * 10)] += 1
    assert sum((count - 1_000) ** 2 / 1_000 for count in bins) < 27.9


def test_any_text_can_be_drawn_for() -> None:
    """Empty, long and half-surrogate ids have a draw in [0, 1)."""
    assert all(0.0 <= uniform(text) < 1.0 for text in ("", "x" * 10_000, "\ud800", "é"))


@pytest.mark.parametrize(("u", "index"), [(0.0, 1), (0.2, 1), (0.25, 2), (0.999999, 2)])
def test_pick_is_the_inverse_cdf(u: float, index: int) -> None:
    """A boundary belongs to the next index; an index without propensity is never picked."""
    assert pick((0.0, 0.25, 0.75, 0.0), u) == index


def test_pick_stands_a_sum_below_one() -> None:
    """Where rounding leaves the sum below the draw, the last index with propensity is picked."""
    assert pick((0.5, 0.4999999, 0.0), 0.99999999) == 1


def test_versions_get_their_shares_whatever_the_policy_draws() -> None:
    """Of the queries that one arm gets, too: the two draws of an id are independent; a shadow gets none."""
    ids = [f"q{number}" for number in range(10_000)]
    shares = {"2": 0.1, "3": 0.0, "4": 0.3}
    for some in (ids, [query_id for query_id in ids if uniform(query_id) < 0.5]):
        drawn = [version(query_id, shares) for query_id in some]
        assert abs(drawn.count("2") / len(some) - 0.1) < 0.02
        assert abs(drawn.count("4") / len(some) - 0.3) < 0.02
        assert "3" not in drawn
