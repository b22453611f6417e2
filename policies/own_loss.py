"""A loss of somebody's own, by a dotted path: `my_pkg.losses:cost`, a function of the label and the answer.

    def cost(label, answer):        what was true, and what was answered: Clipper's L(y, y')
        return 1.0 - overlap(label.split(), answer.split())

It is given what a model answered as a number, a text or an array; of several tensors a dict of arrays. It returns a
cost from 0 up to the application's `span` (1 by default), which counts as a loss of 1. Whatever it raises or returns
wrongly is a `LossError` about that feedback: it can spoil its own application's lessons, and nothing else.

It runs in the joiner, and so on the way of all feedback: `skysail loss check` measures it and tries its promises.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from policies import dotted
from policies.dotted import DottedPathError
from policies.errors import LossError, PolicyError
from policies.foreign import discreet, pass_on_interrupt, told
from policies.outside import forbidden
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Value

_MOST_REFUSED: Final = 1_000
_known: set[str] = set()
_refused: dict[str, str] = {}


def is_known(path: str) -> bool:
    """Tell whether a loss of somebody's own has been imported here."""
    return path in _known


def refuse(path: str, fault: str) -> None:
    """Have a loss refused without importing anything, until it is refused for nothing: an empty fault."""
    _refused.pop(path, None)
    if fault:
        _refused[path] = fault
    if len(_refused) > _MOST_REFUSED:
        del _refused[next(iter(_refused))]


def fault_of(path: str) -> str:
    """Import a loss of somebody's own; return what speaks against it, empty = nothing."""
    try:
        function(path)
    except PolicyError as error:
        return str(error)
    return ""


def function(path: str) -> Callable[[Any, Any], Any]:
    """Return the function of a path.

    Raises:
        PolicyError: it cannot be imported here, or may not be.
    """
    if fault := _refused.get(path) or forbidden(path, "loss"):
        raise PolicyError(fault)
    return _imported(path)


def cost(path: str, label: Value | None, answer: Value | None) -> float:
    """Return what an answer costs, as the function of a path says: 0 or more.

    Raises:
        LossError: it fails, or returns no such number.
        PolicyError: there is no such function.
    """
    judge = function(path)
    try:
        found = float(judge(plain(label), plain(answer)))
    except BaseException as error:  # whatever a stranger's code does
        pass_on_interrupt(error)
        raise LossError(f"{path} fails: {discreet(told(error))}") from error
    if not isfinite(found) or found < 0.0:
        raise LossError(f"{path} returned {found}; a cost is a number, 0 at least")
    return found


def plain(value: Value | None) -> Any:
    """Return a label or an answer as a loss of somebody's own is given it."""
    if isinstance(value, Tensor):
        return value.numpy()
    return dict(value.arrays()) if isinstance(value, NamedTensors) else value


@lru_cache(maxsize=256)
def _imported(path: str) -> Callable[[Any, Any], Any]:
    try:
        found = dotted.resolve(path)
    except DottedPathError as error:
        raise PolicyError(f"loss {error}. Every role that follows applications needs it") from error
    if isinstance(found, type):
        raise PolicyError(f"loss {path} is a class; name a function of the label and the answer")
    _known.add(path)
    return found
