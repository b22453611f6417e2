"""Work in a copy of the process: its result, its errors, and its end."""

from __future__ import annotations

import os
import signal

import pytest

from schemas.errors import DecodeError
from streams.replay.what_if.forked import Copied, CopyEndedError


def test_a_copy_has_what_is_here_and_returns_its_result() -> None:
    """What it changes stays in the copy."""
    numbers = [1, 2]

    def work() -> tuple[int, int]:
        numbers.append(3)
        return sum(numbers), os.getpid()

    total, process = Copied(work).result()

    assert (total, numbers) == (6, [1, 2])
    assert process != os.getpid()


def test_what_may_not_be_copied_is_done_here() -> None:
    """When its result is asked for."""
    assert Copied(os.getpid, is_copied=False).result() == os.getpid()


def test_the_error_of_a_copy_is_raised_here() -> None:
    """With its type and message."""

    def work() -> None:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        Copied(work).result()


def test_an_error_with_a_cause_is_raised_here() -> None:
    """It is made anew from its cause and message."""

    def work() -> None:
        raise DecodeError("invalid", "no such symbol")

    with pytest.raises(DecodeError, match=r"^invalid: no such symbol$") as raised:
        Copied(work).result()
    assert raised.value.cause == "invalid"


def test_a_copy_that_is_killed_is_said() -> None:
    """As by the kernel, for want of memory."""
    with pytest.raises(CopyEndedError, match="want of memory: free memory"):
        Copied(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()


def test_a_copy_that_ends_by_itself_is_said_with_its_status() -> None:
    """It was not memory then."""
    with pytest.raises(CopyEndedError, match="ended with status 3"):
        Copied(lambda: os._exit(3)).result()
