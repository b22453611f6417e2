"""Shows the progress of a start: a moving line in a terminal, line by line elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from deploy.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.status import Status


class Progress(Protocol):
    """Shows the progress of a start."""

    def waits(self, what: str, still: str = "") -> None:
        """Show what is waited for, and which part is still missing."""
        ...

    def done(self, what: str) -> None:
        """Show what has been reached."""
        ...


class Silent:
    """Shows nothing."""

    def waits(self, what: str, still: str = "") -> None:
        """Show nothing."""

    def done(self, what: str) -> None:
        """Show nothing."""


class Shown:
    """Shows progress to a person, or in a log.

    Args:
        console: to print on.
        status: the moving line of a terminal; without it each wait is printed once.
    """

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status
        self._waited = ""
        self._start_s = time.monotonic()

    def waits(self, what: str, still: str = "") -> None:
        """Show what is waited for, and which part is still missing."""
        text = f"waiting for {what}"
        if self._status is not None:
            from rich.text import Text  # it is loaded, as there is a status

            self._status.update(Text.assemble(plain(text), " ", (plain(still), "dim")))
        elif text != self._waited:
            self._print(f"{text} {still}".rstrip())
        self._waited = text

    def done(self, what: str) -> None:
        """Show what has been reached, with the time since the start."""
        self._print(f"{time.monotonic() - self._start_s:5.1f} s  {what}")

    def _print(self, text: str) -> None:
        self._console.print(plain(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown(console: Console | None) -> Iterator[Progress]:
    """Show progress inside the block, nothing without a console; afterwards the line stands still."""
    if console is None:
        yield Silent()
        return
    # A notebook and some services of CI force colours on every program; a file or a pipe stays one all the same.
    if not console.is_terminal or not console.file.isatty():
        yield Shown(console, None)
        return
    with console.status("starting") as status:
        yield Shown(console, status)
