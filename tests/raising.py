"""Models that raise or return what no model should, named by dotted paths in tests (`tests.raising:raises`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from workers.runtimes.contract import Rows


class Panic(BaseException):
    """As a Rust library's: no `Exception`."""


class MuteError(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        """Raise, and no `Exception`."""
        raise Panic

    __repr__ = __str__


class BoundError(Exception):
    """Cannot be pickled, nor made again."""

    def __init__(self, one: int, other: int) -> None:
        self.holds = (lambda: one, lambda: other)


class _Meta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise Panic


class Nameless(BaseException, metaclass=_Meta):
    """Has a class that does not even say its name."""


# What a model may raise, by its place here.
RAISED: Final[tuple[Callable[[], BaseException], ...]] = (
    Panic,
    KeyboardInterrupt,
    lambda: SystemExit(0),
    GeneratorExit,
    asyncio.CancelledError,
    StopIteration,
    StopAsyncIteration,
    RecursionError,
    MemoryError,
    MuteError,
    lambda: BoundError(1, 2),
    Nameless,
    lambda: BaseExceptionGroup("all", [Panic(), KeyboardInterrupt()]),
    lambda: DeprecationWarning("as an error"),
    lambda: ValueError("\ud800\n" * 1_000_000),
    TimeoutError,
    lambda: OSError(5, "input/output error"),
)


def fail(number: int) -> None:
    """Raise the one in that place, counted from 1."""
    error = RAISED[number - 1]()
    raise error


def raises(rows: Any) -> NDArray[np.int64]:
    """Answer 1, but raise for a row that begins with a negative number: what stands in that place."""
    for first in rows[:, 0].tolist():
        if first < 0:
            fail(-int(first))
    return np.ones(len(rows), np.int64)


class Odd:
    """Raises whenever anything of it is read."""

    def __getattribute__(self, name: str) -> Any:
        """Raise, and no `Exception`."""
        raise Panic

    def __len__(self) -> int:
        """Raise as well."""
        raise Panic


class Lazy:
    """An array that is computed when it is read, and cannot be."""

    shape, dtype = (2,), np.dtype(np.int64)

    def __len__(self) -> int:
        """Return a length, as if all were well."""
        return 2

    def __array__(self, *_: object, **__: object) -> NDArray[np.int64]:
        """Fail."""
        raise Panic


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        """Fail."""
        raise Panic


def _generated(rows: int) -> Iterator[int]:
    yield from range(rows)
    raise Panic


# What a model may return for n rows, of which none is an answer for each.
RETURNED: Final[dict[str, Callable[[int], Any]]] = {
    "nothing": lambda _: None,
    "odd": lambda _: Odd(),
    "lazy": lambda _: Lazy(),
    "generated": _generated,
    "fewer": lambda rows: np.ones(rows - 1, np.int64),
    "more": lambda rows: np.ones(rows + 1, np.int64),
    "one": lambda _: 1,
    "square": lambda rows: np.ones((rows, rows, 2)),
    "objects": lambda rows: [Odd() for _ in range(rows)],
    "ragged": lambda rows: [[1] * row for row in range(rows)],
    "complex": lambda rows: np.ones(rows, np.complex128),
    "dates": lambda rows: np.zeros(rows, "datetime64[s]"),
    "records": lambda rows: np.zeros(rows, [("a", int)]),
    "text": lambda rows: "1" * rows,
    "set": lambda rows: set(range(rows)),
    "not a number": lambda rows: np.array([1, np.nan, 1] if rows == 3 else [np.nan] * rows),
    "infinite": lambda rows: np.array([1, np.inf, 1] if rows == 3 else [np.inf] * rows),
    "no outputs": lambda _: Outputs(None),  # type: ignore[arg-type]
    "none in a tuple": lambda rows: Outputs((None,) * rows),  # type: ignore[arg-type]
    "odd scores": lambda rows: Outputs(np.ones(rows), Odd()),  # type: ignore[arg-type]
    "flat scores": lambda rows: Outputs(np.ones(rows), np.ones(rows)),
    "half": lambda rows: Outputs(np.ones(rows, np.float16)),
    "objects in outputs": lambda rows: Outputs(np.array([Odd()] * rows, dtype=object)),
}


def returns(kind: str) -> Callable[[Rows], Any]:
    """Return a model that answers so for a row that begins with 666, and for all others 1."""

    def answer(rows: Rows) -> Any:
        is_bad = 666 in np.asarray(rows)[:, 0]
        return RETURNED[kind](len(rows)) if is_bad else np.ones(len(rows), np.int64)

    return answer
