"""Hosts whose models take long to load: the laws hold, and each law that hosts are held to can fail.

A host has room for one model, two are asked, and a load takes up to 20 s: most answers go without one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from load.research.seeds.plan import HostPlan, plan
from load.research.seeds.world import simulate
from tests.unit.load.test_seeds_find import broken, small
from workers.kernel.host.memory import Memory
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency

if TYPE_CHECKING:
    from load.research.seeds.plan import Plan

pytestmark = pytest.mark.timeout(120)
SLOW_S = 20.0


def slow_host(schedule: str = "fifo", models: int = 1) -> Plan:
    """Return a deployment whose host is slow to load."""
    given = small(1, 60.0, 4.0, processes="hosted")
    return replace(given, host=HostPlan(schedule, models, 1, SLOW_S))


def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that takes its memory for larger than it is."""
    lacks = Residency._lacks
    monkeypatch.setattr(Residency, "_lacks", lambda self, wish: lacks(self, wish) - self.budget_bytes)


def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that forgets what it is loading."""
    monkeypatch.setattr(Memory, "is_loading", lambda _self, _copy: False)
    want = Residency.want

    def forgetful(self: Residency, unit: str, *its: object) -> None:
        known = self._units.get(unit)
        if known is not None and known.is_loading:
            self.drop(unit)
        want(self, unit, *its)  # type: ignore[arg-type]

    monkeypatch.setattr(Residency, "want", forgetful)


def test_one_more_model_than_has_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are in memory, which holds one."""
    one_more(monkeypatch)
    assert broken(slow_host()) == {"hosts"}


def test_a_model_that_is_loaded_twice_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wanted once more while it is loaded."""
    again(monkeypatch)
    found = [what for law, what in simulate(slow_host()).violations if law == "hosts"]
    assert any("being loaded" in what for what in found)


def test_answers_that_wait_for_a_model_longer_than_they_may_are_found() -> None:
    """Five seconds: the host has said long before that the model is not there, or has loaded it."""
    given = slow_host()
    late = replace(given.selection, margin_us=-5_000_000)
    assert broken(replace(given, selection=late)) == {"deadlines"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_host_that_is_slow_to_load_keeps_all_laws(schedule: str) -> None:
    """The same, as it should be; some answers are the default."""
    outcome = simulate(slow_host(schedule))
    assert outcome.violations == ()
    assert outcome.queries > 0


def test_some_seeds_have_hosts_that_are_slow_to_load() -> None:
    """The draw has a generator of its own: all else of these seeds is as it was."""
    hosts = [plan(seed, processes="hosted").host for seed in range(1, 40)]
    assert {host.load_s for host in hosts if host is not None} == {0.0, SLOW_S}
