"""The process of a host's models: several in one child, which ends with the one that is to blame."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from schemas.records import Model, Outcome
from streams.operators.contract import Load, Predict, Unload
from streams.runtime.ports import ExecutorEvents
from tests.dying_import import DIES
from tests.waiting_import import PIPE
from workers.executors.factory import hosted_by
from workers.executors.models_process import kill
from workers.manifest import digest, pinned
from workers.packages.disk_cache import DiskCache
from workers.packages.packaging import package_function
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from streams.runtime.ports import Loaded, Ran
    from workers.executors.host import HostExecutors


class Models:
    """What the child was asked, and what it has answered; waits end when an answer is there."""

    def __init__(self, folder: Path, executors: HostExecutors) -> None:
        self._folder = folder
        self.executors = executors
        self.loads: asyncio.Queue[tuple[str, Loaded]] = asyncio.Queue()
        self.batches: asyncio.Queue[tuple[str, Ran]] = asyncio.Queue()

    async def load(self, name: str, function: str) -> Loaded:
        """Load a model that is a function; returns what became of that."""
        self.begin(name, function)
        found, loaded = await self.loads.get()
        assert found == name
        return loaded

    def begin(self, name: str, function: str) -> None:
        """Begin to load a model that is a function."""
        package = self._folder / name
        if not package.exists():
            package_function(function, package, name, "1", ["a"])
        model = Model(name, "1", "function", str(package), digest(package), "label", None, ())
        self.executors.load(Load(model))

    def ask(self, name: str, text: str, patience_s: float = 30.0) -> None:
        """Ask a model."""
        self.executors.predict(Predict(0, name, "1", (text,), int(patience_s * 1e6)))

    def ask_together(self, texts: dict[str, str], patience_s: float = 30.0) -> None:
        """Ask several models in one batch."""
        patience_us = int(patience_s * 1e6)
        first, *others = [Predict(0, name, "1", (text,), patience_us) for name, text in texts.items()]
        self.executors.predict(first._replace(joined=tuple(others)))

    async def answer(self) -> tuple[str, Outcome, bool, str | None]:
        """Return which model has answered, the outcome, whether it was lost, and the fault."""
        name, ran = await self.batches.get()
        return name, ran.results.outcomes[0], ran.is_lost, ran.results.fault


@asynccontextmanager
async def child(
    folder: Path, lanes: int = 1, memory_bytes: int = 0, cache: DiskCache | None = None, notes: str | None = None
) -> AsyncIterator[Models]:
    """Run models in a child until the block ends."""
    executors = hosted_by(WorkerSettings(notes=notes), lambda: 0, lanes, memory_bytes, cache)
    models = Models(folder, executors)
    events = ExecutorEvents(
        lambda batch, ran: models.batches.put_nowait((batch.model, ran)),
        lambda loaded: models.loads.put_nowait((loaded.model, loaded)),
    )
    async with asyncio.TaskGroup() as tasks:
        executors.connect(events, tasks)
        try:
            yield models
        finally:
            await executors.stop()


async def test_several_models_answer_from_one_process(tmp_path: Path) -> None:
    """The second is loaded beside the first, into the same child."""
    async with child(tmp_path) as models:
        assert (await models.load("moody", "tests.toys:moody")).fault is None
        pid = models.executors.pid
        assert (await models.load("shout", "tests.toys:shout")).fault is None
        assert models.executors.pid == pid
        for name in ("moody", "shout"):
            models.ask(name, "calm")
            assert await models.answer() == (name, Outcome.OK, False, None)


async def test_files_are_kept_in_the_cache_of_the_host(tmp_path: Path) -> None:
    """By their digests, so that another load finds them there."""
    cache = tmp_path / "cache"
    cache.mkdir()
    async with child(tmp_path, cache=DiskCache(str(cache), 1 << 20)) as models:
        await models.load("moody", "tests.toys:moody")
        files = pinned(tmp_path / "moody").manifest.files
        assert {path.name for path in cache.iterdir()} == {*files.values()} != set()
        for name in files:
            (tmp_path / "moody" / name).write_bytes(b"lost")
        models.executors.unload(Unload("moody", "1"))
        assert (await models.load("moody", "tests.toys:moody")).fault is None


async def test_a_model_that_ends_the_process_is_to_blame_and_can_be_loaded_again(tmp_path: Path) -> None:
    """Its batch is lost with the reason; another child takes the next loads."""
    async with child(tmp_path) as models:
        await models.load("moody", "tests.toys:moody")
        first = models.executors.pid
        models.ask("moody", "die")
        name, outcome, is_lost, fault = await models.answer()
        assert (name, outcome, is_lost) == ("moody", Outcome.FAILED, True)
        assert fault is not None
        assert "ended while it was at work" in fault
        await models.load("moody", "tests.toys:moody")
        assert models.executors.pid != first
        models.ask("moody", "calm")
        assert (await models.answer())[:3] == ("moody", Outcome.OK, False)


async def test_a_model_that_has_answered_is_not_to_blame_for_a_load_that_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it is at work then: its rows have no fault, so its host asks it again."""
    package_function("tests.dying_import:answer", tmp_path / "dying", "dying", "1", ["a"])
    monkeypatch.setenv(DIES, "1")
    async with child(tmp_path) as models:
        await models.load("moody", "tests.toys:moody")
        models.ask("moody", "calm")
        await models.answer()
        models.ask("moody", "hang")
        loaded = await models.load("dying", "tests.dying_import:answer")
        assert loaded.is_lost
        assert loaded.fault is not None
        assert "signal 11, SIGSEGV" in loaded.fault
        assert await models.answer() == ("moody", Outcome.FAILED, True, None)


async def test_a_package_that_ends_its_process_ends_none_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried in another child, twice, and then no more; the first child goes on all the while."""
    package_function("tests.dying_import:answer", tmp_path / "dying", "dying", "1", ["a"])
    monkeypatch.setenv(DIES, "1")
    async with child(tmp_path, notes=str(tmp_path / "notes")) as models:
        assert (await models.load("moody", "tests.toys:moody")).fault is None
        first = models.executors.pid
        for why in ("signal 11, SIGSEGV", "signal 11, SIGSEGV", "skysail model retry dying 1"):
            loaded = await models.load("dying", "tests.dying_import:answer")
            assert loaded.fault is not None
            assert why in loaded.fault
            assert not loaded.is_lost
        models.ask("moody", "calm")
        assert (await models.answer())[:3] == ("moody", Outcome.OK, False)
        assert models.executors.pid == first


async def test_a_child_that_is_killed_when_it_has_ended_keeps_its_status() -> None:
    """Whoever looked for it first would else be told, and the other one that nobody knows."""
    for _ in range(30):
        pipe = asyncio.subprocess.PIPE
        ended = await asyncio.create_subprocess_exec("sh", "-c", "kill -s TERM $$", stdout=pipe)
        assert ended.stdout is not None
        assert await ended.stdout.read() == b""
        kill(ended)
        assert await ended.wait() == -signal.SIGTERM


async def test_a_model_whose_loading_hangs_keeps_no_other_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread loads beside it; when it goes on at last, it answers, too."""
    pipe = _waits_for_a_pipe(tmp_path, monkeypatch)
    async with child(tmp_path) as models:
        models.begin("stuck", "tests.waiting_import:answer")
        assert (await models.load("moody", "tests.toys:moody")).fault is None
        pipe.write_bytes(b"")
        assert (await models.loads.get())[1].fault is None
        for name in ("stuck", "moody"):
            models.ask(name, "calm")
            assert (await models.answer())[:2] == (name, Outcome.OK)


async def test_a_model_that_is_let_go_of_while_its_loading_hangs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although another thread has heard that it is to go."""
    pipe = _waits_for_a_pipe(tmp_path, monkeypatch)
    async with child(tmp_path) as models:
        models.begin("stuck", "tests.waiting_import:answer")
        await models.load("moody", "tests.toys:moody")
        models.executors.unload(Unload("stuck", "1"))
        await models.load("shout", "tests.toys:shout")
        pipe.write_bytes(b"")
        await models.loads.get()
        models.ask("stuck", "calm")
        assert (await models.answer())[1] == Outcome.FAILED


def _waits_for_a_pipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Package a model whose loading waits until something is written into a pipe; returns that."""
    package_function("tests.waiting_import:answer", folder / "stuck", "stuck", "1", ["a"])
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv(PIPE, str(pipe))
    return pipe


async def test_a_model_that_hangs_is_to_blame_and_its_neighbour_is_not(tmp_path: Path) -> None:
    """With two lanes the neighbour's batch goes on beside it; what it is asked later is lost without a fault."""
    async with child(tmp_path, lanes=2) as models:
        await models.load("moody", "tests.toys:moody")
        await models.load("shout", "tests.toys:shout")
        models.ask("moody", "hang", patience_s=0.5)
        models.ask("shout", "loud")
        assert await models.answer() == ("shout", Outcome.OK, False, None)
        name, _, is_lost, fault = await models.answer()
        assert (name, is_lost, fault) == ("moody", True, "the model did not answer 1 rows within 0.5 s")
        models.ask("shout", "still")
        assert await models.answer() == ("shout", Outcome.FAILED, True, None)


async def test_a_copy_that_is_let_go_of_before_it_is_loaded_can_be_loaded_again_at_once(tmp_path: Path) -> None:
    """Nobody hears of the first attempt."""
    async with child(tmp_path) as models:
        models.begin("shout", "tests.toys:shout")
        models.executors.unload(Unload("shout", "1", 0))
        assert (await models.load("shout", "tests.toys:shout")).fault is None
        models.ask("shout", "loud")
        assert (await models.answer())[:3] == ("shout", Outcome.OK, False)
        assert models.loads.empty()


async def test_of_a_batch_of_several_models_the_first_without_an_answer_is_to_blame(tmp_path: Path) -> None:
    """Those before it have answered, those behind are lost without a fault; a row that fails harms no other model."""
    async with child(tmp_path) as models:
        for name, function in (("shout", "shout"), ("moody", "moody"), ("echo", "shout")):
            await models.load(name, f"tests.toys:{function}")
        models.ask_together({"shout": "loud", "moody": "raise", "echo": "calm"})
        assert [await models.answer() for _ in range(3)] == [
            ("shout", Outcome.OK, False, None),
            ("moody", Outcome.FAILED, False, "RuntimeError: as you wish"),
            ("echo", Outcome.OK, False, None),
        ]
        models.ask_together({"shout": "loud", "moody": "die", "echo": "calm"})
        assert await models.answer() == ("shout", Outcome.OK, False, None)
        name, outcome, is_lost, fault = await models.answer()
        assert (name, outcome, is_lost) == ("moody", Outcome.FAILED, True)
        assert fault is not None
        assert await models.answer() == ("echo", Outcome.FAILED, True, None)


async def test_a_model_that_hangs_in_a_batch_of_several_is_found(tmp_path: Path) -> None:
    """Its patience counts from when its turn came."""
    async with child(tmp_path) as models:
        for name, function in (("shout", "shout"), ("moody", "moody"), ("echo", "shout")):
            await models.load(name, f"tests.toys:{function}")
        models.ask_together({"shout": "loud", "moody": "hang", "echo": "calm"}, patience_s=0.5)
        found = [await models.answer() for _ in range(3)]
        assert [(name, is_lost) for name, _, is_lost, _ in found] == [("shout", False), ("moody", True), ("echo", True)]
        assert [fault for *_, fault in found] == [None, "the model did not answer 1 rows within 0.5 s", None]


async def test_a_process_that_cannot_be_started_fails_the_load_and_the_next_one_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role goes on meanwhile."""
    python, script = sys.executable, tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))
    async with child(tmp_path) as models:
        fault = (await models.load("shout", "tests.toys:shout")).fault
        assert fault is not None
        assert "the models' process cannot be started" in fault
        script.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        script.chmod(0o755)
        assert (await models.load("shout", "tests.toys:shout")).fault is None


async def test_a_model_that_is_not_there_fails_its_own_part_of_a_batch(tmp_path: Path) -> None:
    """The process goes on."""
    async with child(tmp_path) as models:
        await models.load("shout", "tests.toys:shout")
        models.ask_together({"ghost": "loud", "shout": "loud"})
        assert await models.answer() == ("ghost", Outcome.FAILED, False, "it is not in the models' process")
        assert await models.answer() == ("shout", Outcome.OK, False, None)


async def test_a_batch_for_which_there_is_no_memory_ends_the_process_at_once(tmp_path: Path) -> None:
    """Nobody waits until the patience with the model is over."""
    async with child(tmp_path, memory_bytes=8 << 20) as models:
        await models.load("shout", "tests.toys:shout")
        models.ask("shout", "a" * (64 << 20), patience_s=120.0)
        name, _, is_lost, fault = await models.answer()
        assert (name, is_lost) == ("shout", True)
        assert fault is not None
        assert "ended while it was at work" in fault
