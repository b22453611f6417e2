"""A compiled function that gives way to the original where compiling fails: no C++ compiler, or code it cannot follow.

Compilers work when a function is first called with a shape, so a failure may come at any call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from policies.foreign import pass_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Compiled(Generic[T]):
    """A function of one argument."""

    def __init__(
        self, original: Callable[[T], T], compiled: Callable[[T], T], failed: Callable[[BaseException], None]
    ) -> None:
        """Nothing is called yet.

        Args:
            original: the function.
            compiled: the same, compiled.
            failed: called once, with why only the original is used from now on.
        """
        self._original = original
        self._compiled: Callable[[T], T] | None = compiled
        self._failed = failed

    def __call__(self, argument: T) -> T:
        """Return what the function returns; an error of its own is not the compiler's fault."""
        if self._compiled is None:
            return self._original(argument)
        try:
            return self._compiled(argument)
        except BaseException as error:  # noqa: BLE001 - whatever a compiler raises
            pass_on_interrupt(error)
            answer = self._original(argument)
            self._compiled = None
            self._failed(error)
            return answer
