"""What is installed: what roles need beside the command line, and the compiled parts. Nothing is imported for a look.

python -P -m deploy.process.installed    ends with an error that names the compiled parts that are absent: for builds
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from workers.extras import EXTRAS, install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Role -> a module that comes with all that it needs.
NEEDS: Mapping[str, str] = {
    "control": "faust",
    "gateway": "httptools",
    "telemetry": "opentelemetry",
    "worker": "threadpoolctl",
}
# Every compiled module -> what it does.
EXTENSIONS: Mapping[str, str] = {
    "schemas.compiled": "records",
    "streams.operators.id_times": "remembered ids",
    "streams.columns.asking": "answers of workers over columns",
    "streams.columns.batches": "batches from Kafka, and as columns",
    "streams.columns.joining": "joins over columns",
    "streams.columns.learning": "learning over columns",
    "streams.columns.probes": "tests of columns",
    "streams.columns.selection": "answers over columns",
    "workers.runtimes.descent": "trees",
    "workers.runtimes.stages.grams": "texts",
}


def require_installed(roles: Iterable[str]) -> None:
    """Return if every role can be imported here.

    Raises:
        UsageError: an extra of Skysail is not installed.
    """
    for role in roles:
        module = NEEDS.get(role)
        if module is not None and not _is_installed(module):
            message = f"role {role} needs {module}: {install(EXTRAS[module])}, or leave it out of `roles`"
            raise UsageError(message)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it has been imported and has no `__spec__`, as Faust
        return True


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
