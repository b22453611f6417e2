"""The rows of an unclean election: who is broken when, and what is told of what went away."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from load.matrix import unclean
from load.matrix.broken import LOSSY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from load.matrix.broken import Place

DONE: list[str] = []


class Node:
    """A broker that notes what is done to it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.pid: int | None = number

    def kill(self) -> None:
        """Note it."""
        self.pid = None
        DONE.append(f"kill {self._number}")

    def start(self) -> None:
        """Note it."""
        self.pid = self._number
        DONE.append(f"start {self._number}")


class Partition:
    """A partition that the second broker leads; whatever it is to become, it is."""

    def __init__(self, _place: Place, _topic: str) -> None: ...

    def replicas(self) -> tuple[int, list[int], list[int]]:
        """Return its leader, its replicas, and those in sync."""
        return 2, [1, 2], [1, 2]

    async def becomes(self, _is_so: Callable[[int, list[int]], bool]) -> None:
        """Return at once."""

    def elect(self) -> None:
        """Note it."""
        DONE.append("elect")

    @asynccontextmanager
    async def lenient(self) -> AsyncIterator[None]:
        """Note from when to when."""
        DONE.append("lenient")
        yield
        DONE.append("strict again")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return three brokers, where nobody waits."""
    DONE.clear()
    monkeypatch.setattr(unclean, "_Partition", Partition)
    monkeypatch.setattr(unclean, "_ALONE_S", 0.0)
    counts = iter((2.0, 5.0))
    monkeypatch.setattr(unclean, "gauged", lambda *_: next(counts))
    nodes = {f"broker@{number}": Node(number) for number in (1, 2, 3)}
    return cast("Place", SimpleNamespace(brokers=SimpleNamespace(nodes=nodes)))


async def test_the_leader_is_alone_when_it_is_killed_and_the_first_of_the_others_follows_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three run at any time, and records count that were there and are not."""
    held = iter(([b"a", b"b", b"b", b"c"], [b"a", b"b", b"d"]))
    monkeypatch.setattr(unclean, "values_of", lambda *_: next(held))
    seen = await unclean.UNCLEAN_ROWS[0].blow(place)
    assert seen is not None
    killed = ["kill 1", "kill 2", "start 1", "elect", "start 2"]
    assert ["lenient", *killed, "strict again"] == DONE
    assert [*seen.figures.values()] == [2, 3]
    assert seen.faults == ()


async def test_an_election_that_took_nothing_away_says_that_it_showed_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much came after it."""
    held = iter(([b"a"], [b"a", b"b"]))
    monkeypatch.setattr(unclean, "values_of", lambda *_: next(held))
    seen = await unclean.UNCLEAN_ROWS[0].blow(place)
    assert seen is not None
    assert "showed nothing" in seen.faults[0]


async def test_who_was_killed_is_started_again_though_nobody_could_be_elected(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the rows after it would show that two brokers of three are down."""
    monkeypatch.setattr(unclean, "values_of", lambda *_: [])
    monkeypatch.setattr(Partition, "elect", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await unclean.UNCLEAN_ROWS[0].blow(place)
    assert [node.pid for node in place.brokers.nodes.values()] == [1, 2, 3]


def test_the_validator_knows_that_its_rows_take_records_away() -> None:
    """Else each lost record would be a fault."""
    assert {row.part for row in unclean.UNCLEAN_ROWS} <= LOSSY
