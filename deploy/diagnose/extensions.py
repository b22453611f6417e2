"""Which of the compiled parts are installed; Skysail runs without them, more slowly.

python -P -m deploy.diagnose.extensions    ends with an error that names those that are not: for the build of an image
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Module, as in pyproject.toml -> what it does.
EXTENSIONS: Mapping[str, str] = {
    "schemas.compiled": "records",
    "streams.operators.id_times": "remembered ids",
    "streams.runtime.kafka.fast.unpacking": "batches from Kafka",
    "workers.runtimes.descent": "trees",
}


def is_built(module: str) -> bool:
    """Tell whether an extension is installed, without importing it."""
    spec = find_spec(module)
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


def absent(modules: Iterable[str] = EXTENSIONS) -> list[str]:
    """Return those that are not installed."""
    return [module for module in modules if not is_built(module)]


if __name__ == "__main__":
    missing = absent()
    sys.exit(f"not compiled: {', '.join(missing)}; install a C compiler, then Skysail again" if missing else 0)
