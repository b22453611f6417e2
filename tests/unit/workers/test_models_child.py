"""The child with models, without its process: frames in, answers out."""

from __future__ import annotations

import io
import os
import pickle
import queue
import threading
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import pytest

from schemas.records import Outcome
from streams.operators.contract import Predicted
from workers.errors import PackageError
from workers.executors import child, frames
from workers.executors.child import Models
from workers.executors.footprint import Footprint, Unmeasured
from workers.executors.frames import BESIDE, LOAD, PREDICT, UNLOAD, Package
from workers.executors.together import HeldModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

T = TypeVar("T")


class Panic(BaseException):
    """As a Rust library's: no `Exception`."""


class Odd(Footprint):
    """Fails as no package should."""

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Fail in one way or another."""
        raise {"odd": ZeroDivisionError, "panics": Panic}[folder.name]("a bug")


class Gated(Footprint):
    """Loads nothing; one package only when a gate is opened."""

    def __init__(self) -> None:
        super().__init__(0)
        self.gate = threading.Event()

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Return a model that answers nothing."""
        if folder.name == "slow":
            assert self.gate.wait(30)
        return cast("T", (HeldModel(lambda rows: Predicted.failed(len(rows), "")), None)), 0, 0


class Noted(Models):
    """Notes in which order loads are answered."""

    def __init__(self, footprint: Footprint | Unmeasured, *, is_one: bool = False) -> None:
        super().__init__(io.BytesIO(), footprint, is_one=is_one)
        self.answers: queue.Queue[int] = queue.Queue()
        self.bodies: dict[int, bytes] = {}

    def _answer(self, number: int, body: bytes) -> None:
        self.bodies[number] = body
        self.answers.put(number)


@pytest.mark.parametrize("is_late", [False, True])
def test_whatever_comes_while_a_load_hangs_has_its_turn(monkeypatch: pytest.MonkeyPatch, *, is_late: bool) -> None:
    """Also if the thread that loads comes only when all of it is there; afterwards one thread goes on."""
    monkeypatch.setattr(os, "_exit", lambda _: None)
    footprint = Gated()
    models = Noted(footprint)

    def give(*asked: tuple[str, int, str]) -> None:
        stream = io.BytesIO()
        for what, number, folder in asked:
            package = None if what == UNLOAD else Package(folder)
            frames.write(stream, pickle.dumps((what, [(number, (folder, 0), package)])))
        stream.seek(0)
        models.read(stream)

    loads = threading.Thread(target=models.load, daemon=True)
    if not is_late:
        loads.start()
    give((LOAD, 0, "slow"), (BESIDE, 1, "a"), (UNLOAD, 0, "a"), (BESIDE, 2, "b"), (UNLOAD, 0, "b"), (BESIDE, 3, "c"))
    if is_late:
        loads.start()
    assert sorted(models.answers.get(timeout=30) for _ in range(3)) == [1, 2, 3]
    footprint.gate.set()
    assert models.answers.get(timeout=30) == 0
    give((UNLOAD, 0, "c"), (LOAD, 4, "d"))
    assert models.answers.get(timeout=30) == 4


@pytest.mark.parametrize("folder", ["odd", "panics"])
def test_a_load_that_fails_in_an_unknown_way_is_answered_and_the_next_one_has_its_turn(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """The thread that loads goes on, whatever was raised."""
    monkeypatch.setattr(os, "_exit", lambda _: None)  # which the reader calls at the end of its input
    asked = io.BytesIO()
    for number in range(2):
        frames.write(asked, pickle.dumps((LOAD, [(number, (folder, 0), Package(folder))])))
    asked.seek(0)
    models = Noted(Odd(0))
    models.read(asked)
    threading.Thread(target=models.load, daemon=True).start()
    assert [models.answers.get(timeout=30) for _ in range(2)] == [0, 1]
    with pytest.raises(PackageError, match="a bug"):
        frames.unpack_loaded(models.bodies[0])


def test_a_batch_that_fails_in_an_unknown_way_is_answered_and_the_next_one_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if what is raised is no `Exception`; of the parts of a batch those that had no answer yet fail."""
    monkeypatch.setattr(os, "_exit", lambda _: None)
    monkeypatch.setattr(child, "together", _one_then_panic)
    asked = io.BytesIO()
    for batch in range(2):
        frames.write(asked, pickle.dumps((PREDICT, [(2 * batch + part, ("m", 0), ["a"]) for part in range(2)])))
    asked.seek(0)
    models = Noted(Gated())
    models.read(asked)
    threading.Thread(target=models.predict, daemon=True).start()
    assert [models.answers.get(timeout=30) for _ in range(4)] == [0, 1, 2, 3]
    assert [frames.unpack(models.bodies[number], 1).fault for number in range(4)] == [None, "Panic: a bug"] * 2


def test_one_model_alone_is_loaded_by_whom_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of libraries, and what functions keep, belong to the thread that loads."""
    monkeypatch.setattr(os, "_exit", lambda _: None)
    threads: list[str] = []
    monkeypatch.setattr(child, "_copy", lambda _: (HeldModel(lambda rows: _named(threads, len(rows))), None))
    asked = io.BytesIO()
    frames.write(asked, pickle.dumps((LOAD, [(0, ("m", 0), Package("m"))])))
    frames.write(asked, pickle.dumps((PREDICT, [(1, ("m", 0), ["a"])])))
    asked.seek(0)
    models = Noted(Naming(threads), is_one=True)
    models.read(asked)
    threading.Thread(target=models.predict, daemon=True, name="main").start()
    assert [models.answers.get(timeout=30) for _ in range(2)] == [0, 1]
    assert frames.unpack_loaded(models.bodies[0]).size_bytes == 0
    assert threads == ["main", "main"]


class Naming(Unmeasured):
    """Notes which thread loads."""

    def __init__(self, threads: list[str]) -> None:
        super().__init__(0)
        self._threads = threads

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Load."""
        self._threads.append(threading.current_thread().name)
        return super().measured(folder, load)


def _named(threads: list[str], rows: int) -> Predicted:
    threads.append(threading.current_thread().name)
    return Predicted((Outcome.OK,) * rows, np.zeros(rows))


def _one_then_panic(parts: Sequence[object], recent: object) -> Iterator[Predicted]:
    yield Predicted((Outcome.OK,), np.zeros(1))
    raise Panic("a bug")
