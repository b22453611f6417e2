"""Suspends the harness's garbage collector while it measures."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def frozen() -> Iterator[None]:
    """Have it go only through what is made meanwhile.

    To go through all that the harness holds (scikit-learn, plots, results) takes tens of milliseconds, in which nothing
    is sent and nothing taken.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def stopped() -> Iterator[None]:
    """Collect nothing meanwhile, for seconds in which nothing is made that refers to itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
