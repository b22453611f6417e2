"""What code of strangers raises: models, converters, policies. Whatever it is, it may harm nothing but what was asked.

Not all of it is an `Exception`: a panic of a Rust library, a `KeyboardInterrupt` that a model raises, an `exit()`, a
`CancelledError`. An exception may even fail to say what it is.
"""

from __future__ import annotations

import dis
from typing import Final

MOST: Final = 400  # characters of what is told of an error
_RAISE: Final = dis.opmap["RAISE_VARARGS"]
_OWN: Final = frozenset({"OutputError", "HungError", "PackageError", "DeadlyError", "WorkerError"})  # of `workers`
_handles: list[bool] = []  # that this process does, if it has said so


def told(error: BaseException, lines: int | None = None) -> str:
    """Return the name and the text of an error, or of its first lines, in one; the text may raise one of its own."""
    try:
        # Its own text may be of a class that overrides anything: formatting makes a plain one.
        text = f"{type(error).__name__}: {error}"[:MOST]
        text = " ".join(word for line in text.splitlines()[:lines] for word in line.split())
        return text.encode(errors="backslashreplace").decode()[:MOST]  # half a letter would end a log, and any record
    except BaseException:  # noqa: BLE001 - its `__str__` may raise anything, too
        return f"{type.__dict__['__name__'].__get__(type(error))}, which does not say why"


def discreet(text: str) -> str:
    """Return what `told` gave without the error's own words, which may quote an input: for logs and figures.

    The words go where the input itself goes: with the answer. What this project says of an error stays.

    Examples:
        >>> discreet("ValueError: could not convert string to float: 'Alice'")
        'ValueError; its answer says the words'
        >>> discreet("OutputError: 1 answers for 2 rows")
        'OutputError: 1 answers for 2 rows'
    """
    name, colon, _ = text.partition(": ")
    is_strangers = colon and name.isidentifier() and name not in _OWN
    return f"{name}; its answer says the words" if is_strangers else text


def handles_interrupts(*, does: bool = True) -> None:
    """Say that this process handles a Ctrl-C by itself, so that no `KeyboardInterrupt` comes of one."""
    _handles[:] = [does]


def pass_on_interrupt(error: BaseException) -> None:
    """Raise a `KeyboardInterrupt` again if it is the user's own Ctrl-C, which ends this process.

    In a process that handles it otherwise it is the stranger's, as it is where a `raise` made it.
    """
    if isinstance(error, KeyboardInterrupt) and not any(_handles) and not _is_raised(error):
        raise error


def _is_raised(error: BaseException) -> bool:
    """Tell whether a statement `raise` made this error, the last one of its way."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
