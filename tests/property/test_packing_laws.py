"""Laws of packing: every partition has one host, everything is in time, and few hosts are used."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.packing.squishy import fault_of, pack
from tests.packings import drawn, fewest

# Draws against every possible placement; and how many more hosts there may be in all of them together.
SEEDS, MORE = 60, 1.1


@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(1, 8), st.sampled_from([None, 6, 12]))
def test_every_partition_has_one_host_where_it_is_in_time(
    seed: int, models: int, partitions: int, memory_bytes: int | None
) -> None:
    """Nothing is left out or done twice, and each node keeps its promise."""
    works = drawn(np.random.default_rng(seed), models, partitions)
    found = pack(works, memory_bytes)
    placed = Counter((share.work.model, n) for node in found.nodes for share in node.shares for n in share.partitions)
    assert placed == Counter((work.model, n) for work in works for n in range(work.partitions))
    assert found.refused == tuple((work.model, fault) for work in works if (fault := fault_of(work, memory_bytes)))
    for node in found.nodes:
        assert node.fits(memory_bytes)
        for share in node.shares:
            assert node.duty_us + share.took_us(node.duty_us) <= share.work.objective_us + 1e-6
            assert share.rows(node.duty_us) >= share.per_s * node.duty_us / 1e6 - 1e-6


def test_it_needs_at_most_a_tenth_more_hosts_than_the_best_placement() -> None:
    """Up to six models, half of the draws with a bound on memory, against every possible placement."""
    used = least = 0
    for seed in range(SEEDS):
        random, memory_bytes = np.random.default_rng(seed), 6 if seed % 2 else None
        models = int(random.integers(2, 7))
        works = drawn(random, models, partitions=2 if models < 5 else 1)
        used += len(pack(works, memory_bytes).nodes)
        least += fewest(works, memory_bytes)
    assert least <= used <= MORE * least
