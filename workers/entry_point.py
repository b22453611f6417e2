"""Finds the code that a package names by a dotted path, `package.module:name`, and says which code it may name."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from policies import dotted
from policies.dotted import DottedPathError, look_here
from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

__all__ = ["imported", "look_here", "path_of", "require_within", "resolve"]


def resolve(path: str) -> Callable[..., object]:
    """Import the module before the colon and return what stands after it.

    Raises:
        PackageError: the path is malformed, names the standard library or what a module has only imported, or leads to
            nothing that can be called.
    """
    with _refusing():
        return dotted.resolve(path)


def path_of(function: object) -> str:
    """Return the dotted path of a function.

    Raises:
        PackageError: it has none by which a worker could import it.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module == "__main__" and isinstance(name, str):
        why = (
            f"{name} is defined in the script or notebook that runs, which workers cannot import: move it into a module"
            " beside"
        )
    elif not isinstance(module, str) or not isinstance(name, str) or "<" in name or "." in name:
        why = f"{name or type(function).__name__} is not defined at the top of a module: define a function there"
    elif getattr(sys.modules.get(module), name, None) is not function:
        why = f"{module}:{name} is something else: define a function under its own name in a module"
    else:
        return f"{module}:{name}"
    raise PackageError(f"{why}, and give it or its dotted path, as 'my_model:predict'")


def imported(module: str) -> ModuleType:
    """Import a module that a package names.

    Raises:
        PackageError: it is of the standard library, or cannot be imported here.
    """
    with _refusing():
        return dotted.imported(module)


def require_within(path: str, code: Sequence[str], *, is_strict: bool = False) -> None:
    """Refuse a path whose module is not one of these and not inside one; an empty list allows every module.

    Args:
        path: that a package names.
        code: modules and packages.
        is_strict: an empty list allows no module.

    Raises:
        PackageError: it may not be named here; nothing was imported.
    """
    if is_strict and not code:
        raise PackageError(
            f"{path!r} is code by its path, and none is allowed where packages have to be signed: add"
            f" {path.partition(':')[0] or 'its module'} to worker.code in the settings to let it run here"
        )
    if not dotted.is_within(path, code):
        module = path.partition(":")[0]
        raise PackageError(
            f"{path!r} is not within {', '.join(code)}: add {module or 'its module'} to worker.code in the settings to"
            " let it run here"
        )


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except DottedPathError as error:
        raise PackageError(str(error)) from error
