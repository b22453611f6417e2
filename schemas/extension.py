"""The compiled part of this package, if there is one.

It is built at installation if there is a C compiler. Without one everything works, more slowly. `skysail doctor` says
which it is.
"""

from __future__ import annotations

import sys
from typing import Final

try:
    from schemas import compiled
except ImportError:
    compiled = None  # type: ignore[assignment] # the module is there for the checker

__all__ = ["IS_COMPILED", "compiled"]

# Doubles and columns are copied as they lie in memory.
IS_COMPILED: Final = compiled is not None and sys.byteorder == "little"
