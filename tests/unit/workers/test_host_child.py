"""The child of a host, without its process: frames in, answers out."""

from __future__ import annotations

import io
import os
import pickle
from typing import TYPE_CHECKING, TypeVar

import pytest

from workers.errors import PackageError
from workers.executors import frames
from workers.executors.footprint import Footprint
from workers.executors.host_child import LOAD, NUMBER, Models, Package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class Over(BaseException):
    """Ends a loop that has no end."""


class Odd(Footprint):
    """Fails as no package should, then ends the test."""

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Fail."""
        if folder.name == "odd":
            raise ZeroDivisionError("a bug")
        raise Over


def test_a_load_that_fails_in_an_unknown_way_is_answered_and_the_next_one_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that loads goes on."""
    monkeypatch.setattr(os, "_exit", lambda _: None)  # which the reader calls at the end of its input
    asked, output = io.BytesIO(), io.BytesIO()
    for number, folder in enumerate(("odd", "last")):
        frames.write(asked, pickle.dumps((LOAD, [(number, (folder, 0), Package(folder))])))
    asked.seek(0)
    models = Models(output, Odd(0))
    models.read(asked)
    with pytest.raises(Over):
        models.load()
    output.seek(0)
    answer = frames.read(output)
    assert answer is not None
    assert NUMBER.unpack_from(answer) == (0,)
    with pytest.raises(PackageError, match="ZeroDivisionError: a bug"):
        frames.unpack_hosted(answer[NUMBER.size :])
