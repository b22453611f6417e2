"""Finds the code that a package names by a dotted path, `package.module:name`, and says which code it may name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from policies import dotted
from policies.dotted import DottedPathError, look_here
from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

__all__ = ["imported", "look_here", "require_within", "resolve"]


def resolve(path: str) -> Callable[..., object]:
    """Import the module before the colon and return what stands after it.

    Raises:
        PackageError: the path is malformed, names the standard library or what a module has only imported, or leads to
            nothing that can be called.
    """
    with _refusing():
        return dotted.resolve(path)


def imported(module: str) -> ModuleType:
    """Import a module that a package names.

    Raises:
        PackageError: it is of the standard library, or cannot be imported here.
    """
    with _refusing():
        return dotted.imported(module)


def require_within(path: str, code: Sequence[str]) -> None:
    """Refuse a path whose module is not one of these and not inside one; an empty list allows every module.

    Raises:
        PackageError: it may not be named here; nothing was imported.
    """
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
