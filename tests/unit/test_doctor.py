"""Tests of the machine checks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from deploy.doctor import Level, check_cores, check_jars, check_memory, check_package, check_port, check_python

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_this_interpreter_is_new_enough() -> None:
    """The Python that runs the tests passes its own check."""
    assert check_python().level is Level.OK


def test_an_absent_package_says_how_to_install_it() -> None:
    """The level and the advice given for the absent case come back."""
    check = check_package("no-such-distribution-at-all", "pip install it", Level.WARN)
    assert (check.level, check.found, check.advice) == (Level.WARN, "not installed", "pip install it")


def test_an_installed_package_shows_its_version() -> None:
    """What is there is reported without importing it."""
    assert check_package("pytest", "", Level.MISSING).level is Level.OK


def test_an_empty_cache_warns_and_names_the_way_without_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Jars that are not cached yet are no error: the first start fetches them, and embedded works without."""
    monkeypatch.setenv("SKYSAIL_CACHE", str(tmp_path))
    check = check_jars()
    assert check.level is Level.WARN
    assert check.found.startswith("0 of ")
    assert "BROKER=embedded" in check.advice


def test_one_core_and_little_memory_warn() -> None:
    """Scarce resources are a warning with advice; enough of them is not."""
    assert (check_cores(1).level, check_cores(2).level) == (Level.WARN, Level.OK)
    assert (check_memory(1024**3).level, check_memory(8 * 1024**3).level) == (Level.WARN, Level.OK)


def test_a_taken_port_is_told_from_a_free_one() -> None:
    """A port somebody listens on is a warning that names its use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        taken = check_port(port, "Redis")
    assert (taken.level, taken.found) == (Level.WARN, "taken")
    assert "Redis" in taken.advice
    assert check_port(port, "Redis").level is Level.OK
