"""Ids by the million, each with a time: compiled and in Python they are the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
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


def test_a_window_of_ids_takes_no_more_the_longer_it_goes_on() -> None:
    """Memory follows what is inside the window: 24 bytes an id at most, where it is compiled."""
    if IdTimes is PythonIdTimes:
        pytest.skip("not compiled")
    ids = IdTimes()
    sizes = []
    for number in range(200_000):
        ids.put(str(number), 1 + number, max(1, number - 10_000))
        sizes.append(sys.getsizeof(ids))
    assert max(sizes[100_000:]) == max(sizes[:100_000])
    assert max(sizes) <= 24 * 10_001 + sys.getsizeof(IdTimes())


def test_a_wheel_forgets_the_names_that_are_not_to_be_kept() -> None:
    """What is left is due when it was."""
    wheel = TimerWheel()
    for number in range(6):
        wheel.add(number % 3 * 1_000_000, str(number))
    wheel.keep({"1", "2", "5"})
    assert (len(wheel), wheel.next_due()) == (3, 1_000_000)
    assert [wheel.due(now_us, 10) for now_us in (0, 1_000_000, 2_000_000)] == [[], ["1"], ["2", "5"]]
    assert (len(wheel), wheel.next_due()) == (0, None)
