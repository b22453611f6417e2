"""Squishy bin packing: the published example, and what no host can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.errors import PolicyError
from policies.packing.squishy import fault_of, pack
from policies.packing.work import BatchTimes, HostShare, Share, Work

# Nexus (SOSP'19), Table 2 and section 4.1: three models, their batches, and objectives of 200, 250 and 250 ms.
A = Work("a", 64, 200_000, BatchTimes((4, 8, 16), (50_000, 75_000, 100_000)))
B = Work("b", 32, 250_000, BatchTimes((4, 8, 16), (50_000, 90_000, 125_000)))
C = Work("c", 32, 250_000, BatchTimes((4, 8, 16), (60_000, 95_000, 125_000)))


def _shown(node: HostShare) -> tuple[float, list[tuple[str, int]]]:
    return node.duty_us, [(share.work.model, share.rows(node.duty_us)) for share in node.shares]


def test_saturated_models_run_their_largest_batch_alone() -> None:
    """A answers 160 a second in batches of 16, B and C 128."""
    assert [(work.most_rows, work.most_per_s) for work in (A, B, C)] == [(16, 160.0), (16, 128.0), (16, 128.0)]


def test_the_published_residue_is_packed_as_published() -> None:
    """A has 8 rows every 125 ms. B fits beside it with 4, since 75 + 50 ms are 125; C, with 60 ms, does not."""
    first, second = pack([A, B, C]).nodes
    assert _shown(first) == (125_000.0, [("a", 8), ("b", 4)])
    assert first.occupancy == 1.0
    assert [share.work.model for share in second.shares] == ["c"]
    assert not HostShare((Share(A, (0,)), Share(C, (0,)))).fits(None)


def test_whole_rates_take_full_hosts_and_the_published_residue() -> None:
    """224/s of A and 160/s of B and C: one full host each, then the residue, in as many partitions of 32/s."""
    works = [
        replace(A, per_s=224, partitions=7),
        replace(B, per_s=160, partitions=5),
        replace(C, per_s=160, partitions=5),
    ]
    nodes = pack(works).nodes
    full = [_shown(node) for node in nodes if len(node.shares) == 1 and node.occupancy == 1.0]
    assert sorted(full) == [(100_000.0, [("a", 16)]), (125_000.0, [("b", 16)]), (125_000.0, [("c", 16)])]
    assert (125_000.0, [("a", 8), ("b", 4)]) in [_shown(node) for node in nodes]
    assert len(nodes) == 5


def test_memory_bounds_a_node() -> None:
    """Two models that have time for each other, but no memory, get a host each."""
    heavy = [replace(work, bytes=600 << 20) for work in (A, B)]
    assert len(pack(heavy).nodes) == 1
    assert len(pack(heavy, 1_000 << 20).nodes) == 2


def test_a_rare_model_shortens_the_cycle() -> None:
    """A row a minute still waits no longer than its objective leaves it: the cycle is 150 ms, not a minute."""
    rare = replace(A, per_s=1 / 60)
    assert HostShare((Share(rare, (0,)),)).duty_us == 150_000.0


def test_reasons_say_what_no_host_can_do() -> None:
    """Too large, too tight, and asked too much for its partitions."""
    assert "a host has 100" in fault_of(replace(A, bytes=200 << 20), 100 << 20)
    assert "more than half" in fault_of(replace(A, objective_us=99_000))
    assert "needs 2 partitions, not 1" in fault_of(replace(A, per_s=200))
    assert not fault_of(A)


@pytest.mark.parametrize("times", [((), ()), ((4, 2), (1.0, 2.0)), ((1,), (0.0,)), ((0, 1), (1.0, 2.0))])
def test_times_that_are_none_are_refused(times: tuple[tuple[int, ...], tuple[float, ...]]) -> None:
    """Sizes rise from 1 row, times are positive."""
    with pytest.raises(PolicyError):
        BatchTimes(*times)
