"""What a model's demand remembers."""

from __future__ import annotations

import pickle

from workers.kernel.schedule.contract import Queue
from workers.kernel.schedule.demand import CAPACITY_US, Demand
from workers.kernel.schedule.profiles import Profiles


def test_refusals_that_count_no_more_are_forgotten_although_nobody_asks_for_the_demand() -> None:
    """Nobody does where all models fit into memory."""
    demand = Demand(Profiles())
    sizes = []
    for number in range(100):
        now_us = number * CAPACITY_US
        demand.refused(Queue("a", (now_us + 50_000,), now_us, True, 0, 1, 8), 1, now_us)
        sizes.append(len(pickle.dumps(demand)))
    assert sizes[-1] <= sizes[1] + 8  # a later time takes some more bytes
    assert demand.of("a", now_us) > 0
