"""Ctrl-C and SIGTERM while the demo runs: the first ends it in good order, the second at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, NoReturn, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # as shells say it
SHOW_CURSOR = b"\x1b[?25h"
GONE_S = 1.0


def unwind() -> NoReturn:
    """End a blocking call; `with` blocks stop what they started.

    Raises:
        KeyboardInterrupt: always.
    """
    raise KeyboardInterrupt


class Interrupts:
    """Handles both signals during a block. Main thread only.

    Args:
        folder: removed when the second signal quits at once; everything that the demo's processes write is in there.
    """

    def __init__(self, folder: Path) -> None:
        self.asked = False
        self._folder = folder
        self._action: Callable[[], object] = unwind
        self._before: list[object] = []

    def then(self, action: Callable[[], object]) -> None:
        """Say what the first signal does from now on; if it has come already, do it."""
        self._action = action
        if self.asked:
            action()

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._on_signal) for number in SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` returned

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            quit_at_once(self._folder)
        self.asked = True
        self._action()


def quit_at_once(folder: Path) -> NoReturn:
    """Kill every process that this one has started, remove their folder, and leave without unwinding."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=GONE_S)
    shutil.rmtree(folder, ignore_errors=True)
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), SHOW_CURSOR)
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def own_terminal() -> Iterator[None]:
    """Be the terminal's foreground job, as a shell would make it.

    Ctrl-C goes to the whole foreground job. Started by `make`, that is `make`, too, which dies of it and calls the
    demo's orderly end a failure. Ctrl-Z is ignored: it would stop this process and leave `make` waiting for it.
    """
    before = _foreground()
    if before is None or os.getpgrp() == os.getpid():
        yield
        return
    os.setpgid(0, 0)
    suspend = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    _give_terminal(os.getpgrp())
    try:
        yield
    finally:
        _give_terminal(before)
        signal.signal(signal.SIGTSTP, suspend)


def _foreground() -> int | None:
    """Return the foreground job of the terminal if it is ours, None without a terminal."""
    try:
        group = os.tcgetpgrp(sys.stdin.fileno())
    except (OSError, ValueError):  # no terminal, or no standard input at all
        return None
    return group if group == os.getpgrp() else None


def _give_terminal(group: int) -> None:
    """Make a job the foreground one; asked by a background job, which the terminal would stop for it."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):  # the terminal, or the job, has gone meanwhile
            os.tcsetpgrp(sys.stdin.fileno(), group)
    finally:
        signal.signal(signal.SIGTTOU, before)
