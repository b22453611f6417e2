"""The folder where a command is started, as the last place where the modules that packages name are looked for."""

from __future__ import annotations

import sys
from pathlib import Path


def look_here() -> None:
    """Have modules looked for in the present folder, too: after all others, and only once a package names one."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
