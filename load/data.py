"""Where the public data sets are that some scenarios replay; a fresh clone has none."""

from __future__ import annotations

import os
from pathlib import Path

from load.errors import MissingDataError

# MNIST and models' published predictions on it are too large to ship.
DATA = Path(os.environ.get("SKYSAIL_DATA", "../shared/data"))


def need(*paths: Path) -> None:
    """Check that files are there.

    Raises:
        MissingDataError: one is not; says how to point to it.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise MissingDataError(
            f"no {', '.join(missing)}: set SKYSAIL_DATA to the folder that holds the public data sets"
        )
