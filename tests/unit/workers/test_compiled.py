"""A compiled function gives way to the original where compiling fails."""

from __future__ import annotations

import pytest

from workers.runtimes.compiled import Compiled


def half(number: float) -> float:
    """Return half of a number; zero is refused."""
    if not number:
        raise ValueError("zero")
    return number / 2


def broken(_: float) -> float:
    """Fail as a compiler does."""
    raise RuntimeError("no C++ compiler")


def test_the_compiled_function_answers() -> None:
    """The original is not asked."""
    said: list[Exception] = []
    assert Compiled(broken, half, said.append)(4.0) == 2.0
    assert said == []


def test_a_compiler_that_fails_is_told_once_and_never_asked_again() -> None:
    """Every call has its answer."""
    said: list[Exception] = []
    function = Compiled(half, broken, said.append)
    assert [function(4.0), function(6.0)] == [2.0, 3.0]
    assert list(map(str, said)) == ["no C++ compiler"]


def test_an_error_of_the_function_is_not_the_compilers() -> None:
    """A bad row raises, and the compiled function stays."""
    said: list[Exception] = []
    function = Compiled(half, half, said.append)
    with pytest.raises(ValueError, match="zero"):
        function(0.0)
    assert said == []
