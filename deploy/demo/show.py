"""Where snapshots go: a screen that changes in place on a terminal, else lines once a second."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live

from deploy.demo.view import KEY, line, screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from deploy.demo.snapshot import Snapshot


@contextmanager
def display(console: Console) -> Iterator[Callable[[Snapshot], None]]:
    """Give a function that shows a snapshot; without a terminal each second is shown once."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(screen(now), refresh=True)
        return
    last = 0

    def show(now: Snapshot) -> None:
        nonlocal last
        if int(now.second) > last:
            last = int(now.second)
            print(line(now), flush=True)

    print(KEY, flush=True)
    yield show
