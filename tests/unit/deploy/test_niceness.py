"""Who gives way to whom, and by what."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from deploy.placement.niceness import give_way, niceness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return by how much this process was made nicer, which it is not."""
    calls: list[int] = []
    monkeypatch.setattr(os, "nice", calls.append)
    return calls


@pytest.mark.parametrize(
    ("roles", "count", "found"),
    [
        (("joiner",), 2.0, 5),
        (("joiner", "learner"), 4.0, 5),
        (("selection", "joiner", "learner"), 2.0, 0),
        (("worker",), 2.0, 0),
        (("learner",), 8.0, 0),
    ],
)
def test_who_does_not_answer_gives_way_where_cores_are_few(
    monkeypatch: pytest.MonkeyPatch, roles: tuple[str, ...], count: float, found: int
) -> None:
    """A process that also answers must not, and where there are many cores nobody needs to."""
    monkeypatch.setattr("deploy.placement.niceness.cores", lambda: count)
    assert niceness(roles, 5) == found


@pytest.mark.parametrize(("leader", "written"), [(True, "5"), (False, "0")])
def test_a_session_of_its_own_becomes_nicer_and_a_users_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: list[int], leader: bool, written: str
) -> None:
    """A role that is started by hand shares the session of its terminal."""
    (file := tmp_path / "autogroup").write_text("0")
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid() if leader else 1)
    give_way(5, file)
    assert (made, file.read_text()) == ([5], written)


def test_without_autogroup_the_process_alone_becomes_nicer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: list[int]
) -> None:
    """No file is made where there is none."""
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    give_way(5, tmp_path / "none")
    assert (made, [*tmp_path.iterdir()]) == ([5], [])


def test_what_may_not_be_written_stops_no_role(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: list[int]
) -> None:
    """Containers mount it read-only."""

    def refuse(*_: object) -> int:
        raise PermissionError

    (file := tmp_path / "autogroup").write_text("0")
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr(type(file), "write_text", refuse)
    give_way(5, file)
    assert made == [5]


def test_no_niceness_changes_nothing(tmp_path: Path, made: list[int]) -> None:
    """Not even by 0, which would be harmless."""
    give_way(0, tmp_path / "autogroup")
    assert made == []
