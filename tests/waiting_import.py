"""A model that is loaded only when somebody has written into a pipe, if an environment variable names one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPE: Final = "SKYSAIL_TEST_PIPE"

if pipe := os.environ.get(PIPE):
    Path(pipe).read_bytes()


def answer(texts: Sequence[str]) -> list[str]:
    """Answer `a`."""
    return ["a"] * len(texts)
