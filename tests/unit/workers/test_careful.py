"""Packages that end the process which loads them: tried beside, counted, and tried no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.records import Model
from workers.errors import DeadlyError, HungError, PackageError
from workers.executors.careful import Careful
from workers.executors.models_process import how_ended
from workers.executors.thread import OffLoopExecutor, Timed
from workers.packages.load_notes import LoadNotes, Note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.records import Input

BAD = Model("m", "2", "lightgbm", "nowhere", "abcd", "label", "float32", (2,))
DIES = """
import os, signal, sys
from pathlib import Path
from workers.packages.load_notes import LoadNotes
with LoadNotes(Path(sys.argv[1])).loading("abcd"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Scripted(OffLoopExecutor):
    """Is loaded, or raises; says so."""

    def __init__(self, name: str, said: list[str], fault: BaseException | None = None) -> None:
        self._name, self._said, self._fault = name, said, fault
        self.ready = False

    async def start(self) -> None:
        """Say so, and be loaded or raise."""
        self._said.append(f"{self._name} loads")
        if self._fault is not None:
            raise self._fault
        self.ready = True

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Never be asked."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Say so."""
        self._said.append(f"{self._name} stops")


class Scene:
    """A machine with notes, on which one version is loaded again and again."""

    def __init__(self, folder: Path, beside: BaseException | None = None, inside: BaseException | None = None) -> None:
        self.said: list[str] = []
        self.notes = LoadNotes(folder)
        self._inside = inside
        self._careful = Careful(self.notes, lambda _: Scripted("child", self.said, beside))

    async def load(self, *, is_first: bool = False) -> None:
        """Load it."""
        self.said.clear()
        await self._careful.start(BAD, Scripted("worker", self.said, self._inside), is_first=is_first)


async def test_a_package_is_tried_beside_until_it_has_been_loaded_here(tmp_path: Path) -> None:
    """By any process, as the note is on the disk; another package is another matter."""
    scene = Scene(tmp_path)
    await scene.load()
    assert scene.said == ["child loads", "child stops", "worker loads"]
    other = Scene(tmp_path)
    await other.load(is_first=True)
    assert other.said == ["worker loads"]
    assert not LoadNotes(tmp_path).of("another").is_good


async def test_a_package_that_ends_a_child_is_refused_and_tried_once_more_alone(tmp_path: Path) -> None:
    """The worker loads nothing of it; after two deaths not even a child does, until somebody says so."""
    scene = Scene(tmp_path, beside=DeadlyError("its process ended (signal 11, SIGSEGV)"))
    for _ in range(2):
        with pytest.raises(DeadlyError, match="SIGSEGV"):
            await scene.load()
        assert scene.said == ["child loads", "child stops"]
    with pytest.raises(PackageError, match=r"ended 2 processes .* SIGSEGV.*: skysail model retry m 2"):
        await scene.load()
    assert not scene.said
    LoadNotes(tmp_path).forget("abcd")
    with pytest.raises(DeadlyError):
        await scene.load()


async def test_a_worker_starts_with_another_version_after_one_has_ended_it(tmp_path: Path) -> None:
    """The start refuses it; later it is tried in a child, and if it is loaded after all, that is forgotten."""
    LoadNotes(tmp_path).died("abcd", "by signal 6")
    scene = Scene(tmp_path)
    with pytest.raises(PackageError, match="by signal 6"):
        await scene.load(is_first=True)
    assert not scene.said
    await scene.load()
    assert scene.said == ["child loads", "child stops", "worker loads"]
    assert LoadNotes(tmp_path).of("abcd") == Note(is_good=True)


@pytest.mark.parametrize("fault", [DeadlyError("it died"), HungError("it hangs")])
async def test_what_ends_or_stops_the_process_that_serves_counts_too(tmp_path: Path, fault: Exception) -> None:
    """Though a child had loaded it; a package that is only refused has ended nobody."""
    with pytest.raises(type(fault)):
        await Scene(tmp_path, inside=fault).load()
    assert LoadNotes(tmp_path).of("abcd").deaths == 1
    with pytest.raises(PackageError, match="not here"):
        await Scene(tmp_path, inside=PackageError("not here")).load()
    assert LoadNotes(tmp_path).of("abcd").deaths == 1


def test_a_process_that_is_killed_while_it_loads_leaves_a_note(tmp_path: Path) -> None:
    """Which counts once, whoever looks; while another process loads the same package nothing is counted."""
    killed = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    notes = LoadNotes(tmp_path)
    assert [notes.of("abcd").deaths, LoadNotes(tmp_path).of("abcd").deaths] == [1, 1]
    with notes.loading("abcd"):
        assert LoadNotes(tmp_path).of("abcd").deaths == 1
    assert LoadNotes(tmp_path).of("abcd") == Note(is_good=True)
    assert [path.name for path in tmp_path.iterdir()] == ["abcd.json"]


def test_notes_of_a_folder_that_cannot_be_written_last_as_long_as_their_process(tmp_path: Path) -> None:
    """Loading is as careful without a disk, but forgets; what a record says of a digest names no other file."""
    (tmp_path / "file").write_text("not a folder")
    for notes in (LoadNotes(tmp_path / "file"), LoadNotes(None)):
        notes.died("abcd", "")
        with notes.loading("other"):
            pass
        assert (notes.of("abcd").deaths, notes.of("other").is_good) == (1, True)
    LoadNotes(tmp_path / "notes").died("../../evil*", "")
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "notes"}
    assert LoadNotes(tmp_path / "notes").of("../../evil*").deaths == 1


async def test_a_version_without_a_digest_is_loaded_as_it_is(tmp_path: Path) -> None:
    """There is nothing to note it by."""
    said: list[str] = []
    careful = Careful(LoadNotes(tmp_path), lambda _: Scripted("child", said))
    await careful.start(replace(BAD, digest=""), Scripted("worker", said))
    assert said == ["worker loads"]


def test_how_a_process_ended_is_told_in_words() -> None:
    """By the signal's name where it has one."""
    assert how_ended(-signal.SIGSEGV) == "signal 11, SIGSEGV"
    assert how_ended(-63) == "signal 63"
    assert how_ended(os.EX_USAGE) == "exit status 64"
