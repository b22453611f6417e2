"""A module that ends the process which imports it, where the environment says so."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DIES: Final = "SKYSAIL_TEST_DIES"

if os.environ.get(DIES):
    signal.raise_signal(signal.SIGSEGV)  # to this thread, which runs no further


def answer(rows: Sequence[str]) -> list[str]:
    """Answer with the text itself."""
    return [*rows]
