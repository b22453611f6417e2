"""While a command is loading, Ctrl-C ends it at once, and a missing package is named without a traceback."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workers.extras import remedy

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the system inside a block; in another thread, or with a handler set, change nothing."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def named_extras(extra: str = "") -> Iterator[None]:
    """End the process with the command to type where a module is not installed that an extra of Skysail brings.

    Args:
        extra: that brings all of what the block needs, where it is known.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        advice = remedy(error, extra)
        if not advice:
            raise
        sys.exit(f"skysail: {advice}")
