"""What roles need beside the command line; looked for without an import, before anything starts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from workers.extras import EXTRAS, install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Role -> a module that comes with all that it needs.
NEEDS: Mapping[str, str] = {"control": "faust", "worker": "threadpoolctl"}


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
