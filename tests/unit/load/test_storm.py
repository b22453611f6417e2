"""The storm of the crash matrix: who is there when, and what is told of it, in virtual processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from load.matrix import storm
from load.matrix.mixes import MIXED, PLAIN, STORMY, mix_of
from load.matrix.setting import deployment, reads

if TYPE_CHECKING:
    from pathlib import Path

    from load.matrix.broken import Place

WORKERS = ("worker.right", "worker.right@2", "worker.right@3")


class Workers:
    """Processes that come and go as they are told, at once."""

    def __init__(self, *, is_frail: bool = False) -> None:
        self.pids = {**dict.fromkeys(WORKERS, 1), "selection": 2}
        self.restarts = Counter[str]()
        self.graces: list[float | None] = []
        self._is_frail = is_frail

    async def stop(self, name: str, grace_s: float | None = None) -> None:
        """End one."""
        del self.pids[name]
        self.graces.append(grace_s)

    async def start(self, name: str, _environment: object = None) -> None:
        """Start one, which may end by itself once."""
        self.pids[name] = 1
        self.restarts[name] = int(self._is_frail)


class Asked:
    """So many queries more at each look."""

    def __init__(self, a_look: int) -> None:
        self._sent, self._a_look = -a_look, a_look

    @property
    def sent(self) -> int:
        """Return how many."""
        self._sent += self._a_look
        return self._sent


def place_of(workers: Workers, a_look: int = 20_000) -> Place:
    """Return a place with nothing but workers and somebody who asks."""
    return cast("Place", SimpleNamespace(system=workers, traffic=Asked(a_look), is_short=False))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is a thousandth of one."""
    monkeypatch.setattr(storm, "_LOOK_S", 1e-3)
    monkeypatch.setattr(storm, "_EACH_S", 1e-3)


def test_a_worker_is_there_six_tenths_of_the_time_and_killed_as_often_as_asked() -> None:
    """The same ones for the same worker, whenever it is run."""
    found = [*islice(storm.draws("worker.right"), 10_000)]
    assert sum(draw.is_on for draw in found) / len(found) == pytest.approx(storm.ON, abs=0.02)
    assert sum(draw.is_asked for draw in found) / len(found) == pytest.approx(0.5, abs=0.02)
    assert found[:9] == [*islice(storm.draws("worker.right"), 9)]
    assert found[:9] != [*islice(storm.draws("worker.right@2"), 9)]


async def test_after_a_storm_all_workers_are_there_and_nobody_else_was_touched() -> None:
    """Some were killed, some asked to end, and each was started again."""
    workers = Workers()
    (row,) = storm.STORM_ROWS
    seen = await row.blow(place_of(workers))
    assert seen is not None
    assert workers.pids == {**dict.fromkeys(WORKERS, 1), "selection": 2}
    assert {*workers.graces} == {None, 0.0}
    assert seen.figures["started"] == seen.figures["killed"] + seen.figures["asked to end"] == len(workers.graces)
    assert seen.figures["queries"] >= storm.QUERIES
    assert seen.faults == ()


async def test_a_worker_that_ends_by_itself_in_a_storm_is_told() -> None:
    """Its count begins anew with each life, so it is looked at before each stop."""
    (row,) = storm.STORM_ROWS
    seen = await row.blow(place_of(Workers(is_frail=True)))
    assert seen is not None
    (fault,) = seen.faults
    assert "workers ended that were not ended" in fault


async def test_a_storm_that_cannot_be_made_ends_the_row() -> None:
    """What could not be stopped or started is a finding, and nobody waits for half a million queries."""
    workers = Workers()
    workers.stop = None  # type: ignore[assignment,method-assign]
    (row,) = storm.STORM_ROWS
    async with asyncio.timeout(10):
        with pytest.raises(TypeError):
            await row.blow(place_of(workers, 1))


def test_a_part_has_its_own_load_and_workers(tmp_path: Path) -> None:
    """A dozen of them, a partition each; the short form fewer; what is not read has no group."""
    assert [mix_of(part, is_short=False) for part in ("selection", "mapping", "storm")] == [PLAIN, MIXED, STORMY]
    asked = deployment(STORMY, "mine", tmp_path, "127.0.0.1:1", "redis://127.0.0.1:1", 3)
    assert asked.replicas == {"right": 12}
    assert asked.settings["worker"] == {"partitions": {"right": 12}}
    assert {*reads(STORMY)} == {"selection", "joiner", "learner", "worker.right"}
    assert {*reads(PLAIN)} > {"host.small", "worker.wrong"}
    assert mix_of("storm", is_short=True).workers["right"] < 12
