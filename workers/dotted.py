"""Finds what a dotted path names: `package.module:name`, or `package.module:name.attribute`.

A package that names code is as trusted as the code it names. What such a path may never name is the standard library:
`os:system` as a model would turn a manifest into a shell.
"""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path
from typing import Any

from workers.errors import PackageError, refusing


def resolve(path: str) -> Any:
    """Import the module before the colon and return what stands after it.

    Raises:
        PackageError: the path is malformed, names the standard library, or leads to nothing that can be called.
    """
    module, _, names = path.partition(":")
    if not module or not names:
        raise PackageError(f"{path!r} is not a dotted path: write package.module:name")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise PackageError(
            f"{path!r} names the standard library, which is no model: name a function of your own module"
        )
    _look_here()
    unknown = (ImportError, AttributeError)
    try:
        with refusing(f"{path!r} cannot be imported here", but=unknown):
            found = reduce(getattr, names.split("."), importlib.import_module(module))
    except unknown as error:
        raise PackageError(
            f"{path!r} cannot be imported here ({error}): install its package, or put its folder on PYTHONPATH"
        ) from error
    if not callable(found):
        raise PackageError(f"{path!r} is not callable: name a function")
    return found


def _look_here() -> None:
    """Have modules looked for where the command was started, too: last of all, once a package names one."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
