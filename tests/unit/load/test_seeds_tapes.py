"""What tapes leave open is no difference: a process that had nothing to do, and was killed in its first busy second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from load.research.seeds.faults import Fault
from load.research.seeds.plan import Burst
from load.research.seeds.world import simulate
from streams.replay import as_it_was
from streams.tape.ends import TapeEnds, ends_of
from tests.unit.load.test_seeds_find import small

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.seeds.plan import Plan
    from streams.tape.ends import TapeEnd

pytestmark = pytest.mark.timeout(120)


def idle_and_killed() -> Plan:
    """Two of selection with nothing to do: one is replaced meanwhile, and the other one is killed when work comes."""
    faults = (Fault(100.0, "kill", 1.0, "selection.0"), Fault(200.6, "kill", 1.0, "selection.1"))
    given = small(1, 230.0, 3.0, *faults)
    bursts = (Burst(2.0, 8.0, 5.0), Burst(200.0, 8.0, 20.0))
    return replace(given, replicas={**given.replicas, "selection": 2}, bursts=bursts)


def by_the_next_of_the_role(tapes: Mapping[str, TapeEnd], clocks_us: int) -> TapeEnds:
    """Return how tapes end if whoever of a role begins next takes the place of each that ended before."""
    found = ends_of(tapes, clocks_us)
    firsts = {name: tape._replace(nexts_us=(*sorted(tape.nexts_us)[:1],)) for name, tape in found.tapes.items()}
    return TapeEnds(firsts, clocks_us)


def test_a_rule_that_takes_the_next_of_a_role_for_the_one_in_its_place_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the process wrote in its last second is told by no tape, and counts as made by nobody."""
    monkeypatch.setattr(as_it_was, "ends_of", by_the_next_of_the_role)
    found = simulate(idle_and_killed()).violations
    assert found
    assert {(law, what.split()[0], what.rpartition("again: ")[2]) for law, what in found} == {
        ("replayed", "predictions", "'nothing'")
    }


def test_what_a_process_wrote_in_its_last_second_is_left_open_however_long_it_had_nothing_to_do() -> None:
    """The same, as it should be."""
    assert simulate(idle_and_killed()).violations == ()
