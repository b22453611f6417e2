"""Places of a ranking: what is seldom looked at earns seldom, and is worth no less for it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.contract import is_placing
from policies.lessons import Lesson
from policies.registry import POLICIES
from policies.ridge import Ridge
from policies.two_speed import TwoSpeed
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

WORTH, LOOKED_AT, LESSONS = 0.6, 0.25, 4_000
ROW, COLD = Tensor.of(np.array([0.5])), Tensor.of(np.zeros(2))


def earned() -> Iterator[float]:
    """Yield what a candidate earns at a place: nothing where nobody looks."""
    draw = Random(1)
    for _ in range(LESSONS):
        yield float(draw.random() < LOOKED_AT and draw.random() < WORTH)


@pytest.mark.parametrize(("examined", "expected"), [(LOOKED_AT, WORTH), (1.0, LOOKED_AT * WORTH)])
def test_ridge_expects_what_a_candidate_is_worth_where_it_is_seen(examined: float, expected: float) -> None:
    """Who takes every place for looked at expects less: the share of looks times the worth."""
    policy = Ridge(features=1, low=0.0, high=1.0)
    state = policy.init(1)
    for label in earned():
        lesson = Lesson((0,), (1.0,), (None,), scores=(ROW,), label=label, examined=examined)
        state = policy.observe(state, 1, lesson)
    assert policy.reading(state, 1)({0: ROW}).answer == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("examined", "expected"), [(LOOKED_AT, WORTH), (1.0, LOOKED_AT * WORTH)])
def test_two_speed_expects_what_an_item_is_worth_where_it_is_seen(examined: float, expected: float) -> None:
    """A failure counts as likely as somebody has looked in vain."""
    policy = TwoSpeed(features=0, items=2, ridge=0.01)
    state = policy.init(1)
    for success in earned():
        lesson = Lesson((0,), (1.0,), (1.0 - success,), answers=(1,), scores=(COLD,), examined=examined)
        state = policy.observe(state, 1, lesson)
    reading, _ = policy.reading(state, 1).among([1], {0: COLD}, (), 1, 0.5)
    assert reading.confidence == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("policy", [Ridge(features=1, low=0.0, high=1.0), TwoSpeed(features=1)])
def test_a_place_that_all_look_at_teaches_as_one_without_examination(policy: Ridge | TwoSpeed) -> None:
    """To the bit."""
    lesson = Lesson((0,), (1.0,), (0.3,), (0.2,), answers=(1,), scores=(COLD if policy.name == "two_speed" else ROW,))
    lesson = lesson._replace(label=0.7)
    begun = policy.observe(policy.init(1), 1, lesson)
    assert policy.observe(begun, 1, lesson) == policy.observe(begun, 1, lesson._replace(examined=1.0))
    assert policy.observe(begun, 1, lesson) != policy.observe(begun, 1, lesson._replace(examined=0.5))


def test_policies_that_rank_learn_from_places() -> None:
    """And no others."""
    assert {name for name, policy in POLICIES.items() if is_placing(policy)} == {"ridge", "two_speed"}
