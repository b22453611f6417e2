"""Says what is being done before the live view begins, one line a step, and keeps when each step was done."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


class Steps:
    """The way to the first prediction; seconds count from the start of this process.

    Args:
        console: where the lines go.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.done_s: dict[str, float] = {}  # by name of the step

    def note(self, name: str) -> None:
        """Keep that something has been reached now."""
        self.done_s[name] = round(age_s(), 2)

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[Callable[[str], None]]:
        """Show what is being done; the function given to the block sets what is said once it is done."""
        start_s = age_s()
        done = doing

        def say(text: str) -> None:
            nonlocal done
            done = text

        if self._console.is_terminal:
            with self._console.status(doing):
                yield say
        else:
            yield say
        self.note(name)
        took = f"[dim]({age_s() - start_s:.1f} s)[/]"
        self._console.print(f"[green]✓[/] {done} {took}", highlight=False, soft_wrap=not self._console.is_terminal)


def age_s() -> float:
    """Return for how long this process has run, its imports included (s)."""
    age: float = time.time() - psutil.Process().create_time()
    return age
