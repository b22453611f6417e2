"""A pool of hosts in simulated time: every row has an end, and what loading and changes cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.packing.work import BatchTimes, Work
from workers.simulation.pool import Site, Traffic, play

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.simulation.pool import Homes, Played

S = 1_000_000
WORK = Work("m", 0.0, 100_000, BatchTimes((1, 8), (4_000, 10_000)), bytes=100, load_us=50_000)
OTHER = replace(WORK, model="n")


class Script:
    """Placements by the second in which they begin."""

    def __init__(self, homes: Mapping[int, Homes]) -> None:
        self._homes = homes

    def homes(self, rates: Mapping[str, float], now_us: int) -> Homes:
        """Return the last that has begun."""
        assert all(rate >= 0 for rate in rates.values())
        return self._homes[max(second for second in self._homes if second * S <= now_us)]


def _play(
    homes: Mapping[int, Homes], site: Site, per_s: int = 20, seconds: int = 5, works: tuple[Work, ...] = (WORK,)
) -> Played:
    times_us = np.arange(per_s * seconds, dtype=np.int64) * (S // per_s)
    traffic = Traffic(works, {work.model: [times_us] for work in works})
    return play(traffic, Script(homes), seconds * S, "fixed", site)


def test_a_host_with_time_answers_everything_but_what_comes_while_it_loads() -> None:
    """The first row waits for loading, and is still in time."""
    played = _play({0: {("m", 0): "one"}}, Site())
    assert (played.rows["m"], played.in_time["m"], played.loads) == (100, 100, 1)
    assert played.changes == played.moves == 0


def test_models_that_do_not_fit_together_are_loaded_again_and_again() -> None:
    """With memory for one, every turn of the other one loads it; with memory for both, each is loaded once."""
    homes = {0: {("m", 0): "one", ("n", 0): "one"}}
    crowded = _play(homes, Site(memory_bytes=100), works=(WORK, OTHER))
    roomy = _play(homes, Site(memory_bytes=200), works=(WORK, OTHER))
    assert roomy.loads == 2
    assert crowded.loads > 20
    assert crowded.share_in_time < 0.9
    assert roomy.share_in_time >= 0.99  # one row waits for both to load


def test_a_change_stops_all_hosts_and_loses_no_row() -> None:
    """The rows of the pause are late, the others are answered by the new host."""
    homes = {0: {("m", 0): "one"}, 2: {("m", 0): "two"}}
    still = _play(homes, Site(pause_us=300_000))
    quick = _play(homes, Site(pause_us=0))
    assert (quick.changes, quick.moves, quick.loads) == (1, 1, 2)
    assert quick.in_time["m"] == 100
    assert 100 - 8 <= still.in_time["m"] <= 100 - 4  # those that come in the first 200 to 300 ms


def test_too_few_hosts_drop_early_and_answer_what_they_can() -> None:
    """Asked twice what full batches do, a host answers near its full rate in time."""
    rate = WORK.most_per_s
    played = _play({0: {("m", 0): "one"}}, Site(), per_s=round(2 * rate), seconds=3)
    assert 0.85 * rate * 3 <= played.in_time["m"] <= rate * (3 + 0.1)  # what waits at the end is answered, too
