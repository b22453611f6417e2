"""Says what a start waits for and what has been reached: moving in a terminal, line by line elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.status import Status


class Progress(Protocol):
    """What is told while something starts."""

    def waits(self, what: str, still: str = "") -> None:
        """Tell what is waited for from now on, and what of it is still missing."""
        ...

    def done(self, what: str) -> None:
        """Tell what has been reached."""
        ...


class Silent:
    """Tells nobody."""

    def waits(self, what: str, still: str = "") -> None:
        """Tell nobody."""

    def done(self, what: str) -> None:
        """Tell nobody."""


class Shown:
    """Tells a person, or a log.

    Args:
        console: where to.
        status: the moving line of a terminal; without it what is waited for is a line of its own, once.
    """

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status
        self._waited = ""
        self._start_s = time.monotonic()

    def waits(self, what: str, still: str = "") -> None:
        """Tell what is waited for from now on, and what of it is still missing."""
        text = f"waiting for {what}"
        if self._status is not None:
            self._status.update(f"{text} [dim]{still}[/]")
        elif text != self._waited:
            self._print(f"{text} {still}".rstrip())
        self._waited = text

    def done(self, what: str) -> None:
        """Tell what has been reached, and how long after the start."""
        self._print(f"{time.monotonic() - self._start_s:5.1f} s  {what}")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    """Tell what goes on inside the block; afterwards nothing moves any more."""
    if not console.is_terminal:
        yield Shown(console, None)
        return
    with console.status("starting") as status:
        yield Shown(console, status)
