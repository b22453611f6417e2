"""Libraries are imported one at a time, and what one is imported without is missing for nobody else."""

from __future__ import annotations

import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from workers.imports import library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A library that would import another one for nothing, and that takes until it is told to end.
SLOW = """
import gate
gate.begun.set()
assert gate.go_on.wait(30)
try:
    import skysail_heavy
except ModuleNotFoundError:
    skysail_heavy = None
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put two libraries where they are found, and a module by which they are stopped on the way."""
    (tmp_path / "skysail_slow.py").write_text(SLOW)
    (tmp_path / "skysail_heavy.py").write_text("import gate\ngate.heavy.set()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made: Any = ModuleType("gate")
    made.begun, made.go_on, made.heavy = threading.Event(), threading.Event(), threading.Event()
    sys.modules["gate"] = made
    yield made
    made.go_on.set()
    for name in ("gate", "skysail_slow", "skysail_heavy"):
        sys.modules.pop(name, None)


def test_what_one_thread_does_without_another_one_imports(gate: Any) -> None:
    """In the middle of the import, by code that waits for nobody; what had it not needs it no more."""
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(library, "skysail_slow", without={"skysail_heavy"})
        assert gate.begun.wait(30)
        heavy = threads.submit(importlib.import_module, "skysail_heavy").result(30)
        assert gate.heavy.is_set()
        del sys.modules["skysail_heavy"]
        gate.go_on.set()
        assert slow.result(30).skysail_heavy is None
    assert heavy.__name__ == "skysail_heavy"
    assert importlib.import_module("skysail_heavy").gate is gate


def test_a_library_is_imported_after_the_one_that_is_being_imported(gate: Any) -> None:
    """The second has not begun when the first ends, however long that takes."""
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(library, "skysail_slow", without={"skysail_heavy"})
        assert gate.begun.wait(30)
        heavy = threads.submit(library, "skysail_heavy")
        assert not gate.heavy.wait(0.2)
        gate.go_on.set()
        assert slow.result(30).skysail_heavy is None
        heavy.result(30)
    assert gate.heavy.is_set()
