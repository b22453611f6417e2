"""Finds what a dotted path names: `package.module:name`, or `package.module:name.attribute`.

Such a path reaches only what the named module, or the package that it belongs to, defines itself, so `psutil:os.system`
is refused. This guards against mistakes: a library's own functions may start programs, so who may name code may run
code. `is_within` says which modules may be named at all (`worker.code`, `policy_code`).
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from policies.foreign import pass_on_interrupt, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


OWN = ("deploy", "load", "streams", "workers")
# Models of demo and measurements; of networks.
_NAMED = ("load.models.", "load.research.models.", "deploy.demo.models.", "workers.runtimes.")


class DottedPathError(ValueError):
    """A path that leads to nothing that may be used; the message says what to do."""


def resolve(path: str) -> Callable[..., object]:
    """Import the module before the colon and return what stands after it.

    Raises:
        DottedPathError: the path is malformed, names the standard library or what a module has only imported, or leads
            to nothing that can be called.
    """
    module, _, names = path.partition(":")
    if not module or not names:
        raise DottedPathError(f"{path!r} is not a dotted path: write package.module:name")
    found = _walked(path, imported(module, path), names)
    if not callable(found):
        raise DottedPathError(f"{path!r} is not callable: name a function")
    return found


def imported(module: str, named: str = "") -> ModuleType:
    """Import a module that somebody has named.

    Args:
        module: with dots.
        named: what the message calls it; empty = the module.

    Raises:
        DottedPathError: it is of the standard library, runs a program, is Skysail's own, or cannot be imported here.
    """
    named = named or module
    check(module, named)
    look_here()
    try:
        return importlib.import_module(module)
    except BaseException as error:  # whatever a stranger's module does when it is imported
        pass_on_interrupt(error)
        raise DottedPathError(_unknown(named, error)) from error


def check(module: str, named: str) -> None:
    """Refuse a module by its name alone; nothing is imported.

    Raises:
        DottedPathError: it is of the standard library, runs a program, or is Skysail's own.
    """
    if "__main__" in module.split(".")[1:] or _is_ours(module):
        raise DottedPathError(f"{named!r} is a program, or a part of Skysail that nobody names: name your own module")
    if _package(module) in {*sys.stdlib_module_names, "__main__"}:
        raise DottedPathError(
            f"{named!r} names the standard library, which is no model: name a function of your own module"
        )


def _is_ours(module: str) -> bool:
    """Tell whether a module is of Skysail, and neither a policy nor a model."""
    return _package(module) in OWN and not f"{module}.".startswith(_NAMED)


def is_within(path: str, code: Sequence[str]) -> bool:
    """Tell whether a path's module is one of these or inside one; an empty list allows every module."""
    module = path.partition(":")[0]
    return not code or any(f"{module}.".startswith(f"{prefix}.") for prefix in code)


def look_here() -> None:
    """Search the current folder for modules, too: last of all, and only when somebody may name one."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def _walked(path: str, module: ModuleType, names: str) -> object:
    """Follow attributes from a module; each of them must have been defined in its package."""
    found: object = module
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except BaseException as error:  # a module may have a `__getattr__` of its own
            pass_on_interrupt(error)
            raise DottedPathError(_unknown(path, error)) from error
        if isinstance(found, ModuleType) or (callable(found) and not _is_defined_in(_package(module.__name__), found)):
            raise DottedPathError(
                f"{path!r} leads out of {module.__name__}: {name} is only imported there. Name the module that defines"
                " it, or wrap it in a function of your own"
            )
    return found


def _unknown(named: str, error: BaseException) -> str:
    cause = str(error) if type(error) in (ImportError, ModuleNotFoundError, AttributeError) else told(error)
    return (
        f"{named!r} cannot be imported here ({cause}): install its package, or put its folder on PYTHONPATH;"
        f" modules are looked for in {', '.join(_folders())} and among the installed packages"
    )


def _is_defined_in(package: str, found: object) -> bool:
    """Tell whether a function, a class, a method, or an object of such a class, comes from a package."""
    while isinstance(found, partial):
        found = found.func
    return _package(str(getattr(found, "__module__", ""))) == package


def _package(module: str) -> str:
    """Return the outermost package of a module."""
    return module.partition(".")[0]


def _folders() -> list[str]:
    """Return where modules are looked for besides the installed packages, in order."""
    installed = tuple(f"{prefix}/lib" for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    return [folder or str(Path.cwd()) for folder in sys.path if _is_told(folder, installed)] or ["no folder"]


def _is_told(folder: str, installed: tuple[str, ...]) -> bool:
    """Tell folders that were named from installed ones and from the hooks of editable installs."""
    return not folder.startswith((*installed, "__editable__"))
