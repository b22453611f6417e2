"""The plain caches that the prediction cache is held against."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.research.batching.replacement import clock, lru

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RULES = (lru, clock)


def test_which_key_goes() -> None:
    """Room for two, and a third comes: LRU lets go of the one used longest ago, CLOCK of the one not used again."""
    assert (lru([1, 1, 2, 3, 1], 2), clock([1, 1, 2, 3, 1], 2)) == (1, 2)


@pytest.mark.parametrize("rule", RULES)
@given(keys=st.lists(st.integers(0, 20)))
def test_with_room_for_everything_each_key_misses_once(
    rule: Callable[[Sequence[int], int], int], keys: list[int]
) -> None:
    """Whatever the order."""
    assert rule(keys, 21) == len(keys) - len({*keys})


@pytest.mark.parametrize("rule", RULES)
@given(keys=st.lists(st.integers(0, 20)))
def test_room_for_one_hits_repetitions_alone(rule: Callable[[Sequence[int], int], int], keys: list[int]) -> None:
    """A key is there if it is the one before."""
    assert rule(keys, 1) == sum(key == before for before, key in pairwise(keys))
