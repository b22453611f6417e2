"""Long work beside the page: how much of the event loop is left to others."""

from __future__ import annotations

import asyncio

import pytest

from streams.control.carry import fairly as module
from streams.control.carry.fairly import TURN_S, fairly
from tests.virtual import run


def test_others_get_as_much_time_as_the_work_takes_and_little_work_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a loop in virtual time, with a clock of the work that it moves itself."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    async def work(count: int, each_s: float) -> tuple[list[int], float]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        began_s = loop.time()
        async for item in fairly(range(count)):
            seen.append(item)
            clock[0] += each_s
        return seen, loop.time() - began_s

    seen, waited_s = run(work(100, TURN_S / 4))
    assert seen == [*range(100)]
    assert 0.8 < waited_s / (100 * TURN_S / 4) <= 1
    assert run(work(3, TURN_S / 4)) == ([0, 1, 2], 0)


def test_work_waits_while_it_may_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked after each turn."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        began_s, seen = loop.time(), list[float]()
        async for _ in fairly(range(4), lambda: not 1 <= loop.time() - began_s <= 5):
            seen.append(loop.time() - began_s)
            clock[0] += 0.7
        return seen

    assert run(work()) == pytest.approx([0, 0.7, 5.1, 5.8], abs=module.PAUSE_S)
