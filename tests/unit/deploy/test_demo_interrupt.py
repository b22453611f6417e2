"""Ctrl-C and SIGTERM: what the first signal does changes with what is going on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from deploy.demo.run import Interrupts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_first_a_signal_unwinds(number: signal.Signals, tmp_path: Path) -> None:
    """While the broker starts, nothing but an exception ends what blocks."""
    with Interrupts(tmp_path) as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert interrupts.asked


def test_later_a_signal_does_what_was_said_last(tmp_path: Path) -> None:
    """Nothing is raised: the client ends its sending instead."""
    done: list[str] = []
    with Interrupts(tmp_path) as interrupts:
        interrupts.then(lambda: done.append("cancel"))
        interrupts.then(lambda: done.append("stop"))
        signal.raise_signal(signal.SIGINT)
    assert done == ["stop"]


def test_what_follows_a_signal_ends_at_once(tmp_path: Path) -> None:
    """A signal during the warm-up ends the load before its first query."""
    done: list[str] = []
    with Interrupts(tmp_path) as interrupts:
        interrupts.then(lambda: done.append("warm-up"))
        signal.raise_signal(signal.SIGTERM)
        interrupts.then(lambda: done.append("load"))
    assert done == ["warm-up", "load"]


def test_the_handlers_of_before_come_back(tmp_path: Path) -> None:
    """After the demo Ctrl-C is what it was."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts(tmp_path):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
