"""Laws of moving: nothing is lost or doubled, what fits stays, and a plan that changes nothing moves nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.packing.epochs import PlanPace, planned
from policies.packing.moving import MoveTerms, moved
from policies.packing.squishy import pack
from tests.packings import drawn

S = 1_000_000
SEEDS = st.integers(0, 1 << 32)
# Shares of a host more than packing from nothing, on the average over epochs in which every rate moves.
MORE = 1.15


def _hosts(count: int) -> list[str]:
    return [f"h{number:02}" for number in range(count)]


@given(SEEDS, st.integers(1, 12), st.integers(1, 4), st.integers(1, 10))
def test_every_partition_has_one_host_that_there_is(seed: int, models: int, partitions: int, hosts: int) -> None:
    """However few hosts there are, and whichever have gone."""
    random = np.random.default_rng(seed)
    works = drawn(random, models, partitions)
    names = _hosts(hosts)
    before = {
        (work.model, n): f"h{random.integers(hosts + 3):02}"
        for work in works
        for n in range(work.partitions)
        if random.random() < 0.7
    }
    works = [replace(work, per_s=0.0) if random.random() < 0.2 else work for work in works]
    found = moved(before, works, names, MoveTerms(memory_bytes=8)).hosts_of()
    assert found.keys() == {(work.model, n) for work in works for n in range(work.partitions)}
    assert {*found.values()} <= {*names}


@given(SEEDS, st.integers(1, 10))
def test_the_same_rates_move_nothing(seed: int, models: int) -> None:
    """A placement that fits stays as it is, unless a host can be freed."""
    works = drawn(np.random.default_rng(seed), models)
    hosts = _hosts(len(pack(works).nodes))
    first = moved({}, works, hosts, MoveTerms())
    again = moved(first.hosts_of(), works, hosts, MoveTerms(), since_us=0)
    assert again.hosts_of() == first.hosts_of()
    assert not again.reasons


@given(SEEDS, st.integers(1, 10), st.integers(1, 4), st.integers(0, 4), st.floats(0, 1))
def test_so_many_hosts_have_work_as_are_asked_for(seed: int, models: int, least: int, more: int, idle: float) -> None:
    """As far as there are models, asked or not, wherever they were before; then the same rates move nothing."""
    random = np.random.default_rng(seed)
    works = [replace(work, per_s=0.0) if random.random() < idle else work for work in drawn(random, models)]
    hosts, terms = _hosts(least + more), MoveTerms(least=least)
    before = {(work.model, n): hosts[0] for work in works for n in range(work.partitions) if random.random() < 0.7}
    first = moved(before, works, hosts, terms)
    again = moved(first.hosts_of(), works, hosts, terms, since_us=0)
    assert len({*first.hosts_of().values()}) >= min(least, len(works))
    asked = [work for work in works if work.per_s]
    assert sum(1 for node in first.nodes.values() if node.is_asked) >= min(least, len(asked))
    assert again.hosts_of() == first.hosts_of()


@given(SEEDS, st.integers(2, 10))
def test_what_is_in_time_stays_when_a_host_goes(seed: int, models: int) -> None:
    """Only what the lost host had moves, while others have room or are free."""
    works = drawn(np.random.default_rng(seed), models)
    hosts = _hosts(2 * sum(work.partitions for work in works))
    first = moved({}, works, hosts, MoveTerms())
    gone = hosts[0]
    second = moved(first.hosts_of(), works, hosts[1:], MoveTerms(), since_us=0)
    stays = {place: host for place, host in first.hosts_of().items() if host != gone}
    assert second.hosts_of().items() >= stays.items()
    assert all(node.fits(None) for node in second.nodes.values())


def test_moving_little_needs_few_hosts_more_than_packing_from_nothing() -> None:
    """Twenty models over forty epochs, every rate off by up to a quarter each time."""
    random = np.random.default_rng(7)
    works = [replace(work, load_us=500_000) for work in drawn(random, 20)]
    hosts, before, used, least, moves, now_us = _hosts(40), None, 0, 0, 0, 0
    for _ in range(40):
        works = [
            replace(work, per_s=min(work.per_s * random.uniform(0.8, 1.25), 0.9 * work.partitions * work.most_per_s))
            for work in works
        ]
        now_us += 30 * S
        found = planned(before, works, hosts, now_us, PlanPace(terms=MoveTerms(pause_us=200_000)))
        moves += len({*found.homes.items()} - {*before.homes.items()}) if before is not None else 0
        used += len({*found.homes.values()})
        least += len(pack([replace(work, per_s=work.per_s * 1.1) for work in works]).nodes)
        before = found
    assert used <= MORE * least
    assert moves <= 3 * 40  # of some thirty partitions, three an epoch


@given(SEEDS, st.integers(1, 8))
def test_a_plan_stands_between_epochs(seed: int, models: int) -> None:
    """Rates that are within what is provided for give the same plan, and the same object."""
    works = drawn(np.random.default_rng(seed), models)
    first = planned(None, works, _hosts(8), 0, PlanPace())
    assert planned(first, works, _hosts(8), 29 * S, PlanPace()) is first
    assert planned(first, works, _hosts(8), 30 * S, PlanPace()).why == "the epoch is over"
