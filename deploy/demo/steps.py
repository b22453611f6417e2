"""Says what is being done before the live view begins: one line a step, with how long it took."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


@contextmanager
def step(console: Console, doing: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done; the function given to the block sets what is said once it is done."""
    start_s = time.monotonic()
    done = doing

    def say(text: str) -> None:
        nonlocal done
        done = text

    if console.is_terminal:
        with console.status(doing):
            yield say
    else:
        yield say
    console.print(f"[green]✓[/] {done} [dim]({time.monotonic() - start_s:.1f} s)[/]", highlight=False)
