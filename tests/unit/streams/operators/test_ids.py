"""Ids by the million, each with a time: compiled and in Python they are the same."""

from __future__ import annotations

import itertools
import random
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.operators.ids import IdTimes, PythonIdTimes
from streams.operators.join.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = pytest.mark.parametrize("make", [IdTimes, PythonIdTimes], ids=("installed", "python"))
PUTS = st.lists(st.tuples(st.text(max_size=3), st.integers(1, 2**32 - 1)), max_size=200)


@KINDS
@given(puts=PUTS)
def test_an_id_has_the_time_it_was_given_last(make: Callable[[], IdTimes], puts: list[tuple[str, int]]) -> None:
    """And none before; each time it is given one it says which it had."""
    ids, model = make(), dict[str, int]()
    for name, time in puts:
        assert ids.put(name, time, 0) == model.get(name, 0)
        model[name] = time
    assert {name: ids.find(name) for name in model} == model
    assert ids.find("no such id") == 0


@KINDS
def test_what_is_not_too_old_is_kept_however_many_there_are(make: Callable[[], IdTimes]) -> None:
    """A window of 5,000 ids, the first of 50,000 long gone."""
    ids = make()
    for number in range(50_000):
        assert ids.put(str(number), 1 + number, max(1, number - 5_000)) == 0
    assert all(ids.find(str(number)) == 1 + number for number in range(45_000, 50_000))


@settings(max_examples=60, deadline=None)
@given(st.integers(), st.sampled_from((800, 3_000, 20_000)), st.sampled_from((50, 2_000, 10**9)))
def test_a_table_that_moves_answers_as_the_one_in_python(seed: int, spread: int, window: int) -> None:
    """For puts and finds of ids that come, come again and grow old, across moves: what is not too old has its time."""
    draw, ids, model, oldest = random.Random(seed), IdTimes(), PythonIdTimes(), 1
    for now in range(1, 6_000):
        name, asked = str(draw.randrange(spread)), str(draw.randrange(spread))
        oldest = max(oldest, now - draw.randrange(window))
        for found, known in (
            (ids.find(asked), model.find(asked)),
            (ids.put(name, now, oldest), model.put(name, now, oldest)),
        ):
            assert found == known if known >= oldest else found < oldest


def test_a_table_moves_over_many_puts() -> None:
    """It is there twice for a while: no put stops the loop to move it whole, and what is in it is found meanwhile."""
    if IdTimes is PythonIdTimes:
        pytest.skip("not compiled")
    ids = IdTimes()
    sizes = []
    for number in range(100_000):
        ids.put(str(number), 1 + number, 1)
        sizes.append(sys.getsizeof(ids))
        assert ids.find(str(number // 2)) == 1 + number // 2
    runs = [len(list(same)) for _, same in itertools.groupby(sizes)]
    assert min(runs[-4:-1]) > 1_000  # of puts between the begin of a move and its end, or the next begin


def test_a_window_of_ids_takes_no_more_the_longer_it_goes_on() -> None:
    """Memory follows what is inside the window: 27 bytes an id at most, and twice that while it moves."""
    if IdTimes is PythonIdTimes:
        pytest.skip("not compiled")
    ids = IdTimes()
    sizes = []
    for number in range(200_000):
        ids.put(str(number), 1 + number, max(1, number - 10_000))
        sizes.append(sys.getsizeof(ids))
    assert max(sizes[100_000:]) <= 1.05 * max(sizes[:100_000])
    assert max(sizes) <= 54 * 10_001 + sys.getsizeof(IdTimes())
    assert sorted(sizes)[len(sizes) // 2] <= 27 * 10_001


def test_a_wheel_forgets_the_names_that_are_not_to_be_kept() -> None:
    """What is left is due when it was."""
    wheel = TimerWheel()
    for number in range(6):
        wheel.add(number % 3 * 1_000_000, str(number))
    wheel.keep({"1", "2", "5"})
    assert (len(wheel), wheel.next_due()) == (3, 1_000_000)
    assert [wheel.due(now_us, 10) for now_us in (0, 1_000_000, 2_000_000)] == [[], ["1"], ["2", "5"]]
    assert (len(wheel), wheel.next_due()) == (0, None)
