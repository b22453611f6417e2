"""The scenario of many models: its queries are those that were counted, and its load is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from load.errors import MissingDataError
from load.research.clockwork import many_asked, many_models
from load.research.clockwork.many_asked import Asked


def test_the_published_times_are_there_as_they_were_published() -> None:
    """All of ResNet-50; of the others one row and sixteen, and the sizes between rise."""
    families = {each.name: each.model().profile for each in many_models.published()}
    resnet50 = families["resnet50"]
    assert resnet50 is not None
    assert (resnet50.p99_us, resnet50.load_us) == ((2_610, 3_780, 5_610, 9_130, 15_670), 8_330)
    for profile in families.values():
        assert profile is not None
        assert list(profile.p99_us) == sorted(set(profile.p99_us))


def test_queries_come_as_fast_as_asks_for_the_load() -> None:
    """One query a second for a ResNet-50 that is loaded once: at 70 % it comes every 2.61 / 0.7 ms."""
    models = (many_models.published()[1].model(),)
    its = Asked(np.arange(10_000.0), np.zeros(10_000, np.int64))
    played = many_asked.played(its, models, models[0].bytes, 0.7, loads_beside=True)
    row_us = models[0].service.sampler(np.random.default_rng(0))(1)
    assert played.arrivals_us[-1] == pytest.approx(10_000 * row_us / 0.7, rel=0.01)


def test_minutes_that_ask_for_more_than_the_load_are_told_apart_and_so_are_those_after_them() -> None:
    """Of four times five minutes the second is busy: it and the third are not within the load."""
    models = (many_models.published()[1].model(),)
    counts = (100, 1_000, 100, 100)
    at_s = np.concatenate([300.0 * place + 300 * np.arange(count) / count for place, count in enumerate(counts)])
    its = Asked(at_s, np.zeros(len(at_s), np.int64))
    played = many_asked.played(its, models, models[0].bytes, 0.7, loads_beside=True)
    within = [bool(played.is_within[at_s // 300 == place].all()) for place in range(4)]
    assert within == [True, False, False, True]


def test_no_count_is_changed_or_left_out() -> None:
    """The first 5,000 queries are the first 5,000 tweets, in order, and each company asks its own models."""
    try:
        its = many_asked.asked(5_000, 200, np.random.default_rng(1))
    except MissingDataError:
        pytest.skip("the counts are not in SKYSAIL_DATA")
    assert len(its.at_s) == 5_000
    assert (np.diff(its.at_s) >= 0).all()
    begins = min(starts[0] for starts, _ in many_asked.counted())
    until_s = its.at_s[-1] // 300 * 300
    expected = [int(counts[starts - begins < until_s].sum()) for starts, counts in many_asked.counted()]
    assert np.bincount(its.models[its.at_s < until_s] // 20, minlength=10).tolist() == expected
