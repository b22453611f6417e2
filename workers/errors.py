"""What can go wrong with a model.

WorkerError
├── PackageError    the package is wrong, incomplete or not trusted: nothing was loaded    (operator, not retryable)
├── DeadlyError     loading it ended a process, or did not end                              (operator, seldom retryable)
├── OutputError     the model's answer is not one answer for each row: the rows are FAILED (model)
└── HungError       predict did not come back in time: the process must be replaced        (model, retryable)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from policies.foreign import pass_on_interrupt, told
from workers.extras import remedy

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorkerError(Exception):
    """Anything wrong with a model or its worker."""


class PackageError(WorkerError):
    """A model package was refused; the message says what to do."""


class DeadlyError(WorkerError):
    """Loading a package ended the process that did it, or had to be ended with it."""


class OutputError(WorkerError):
    """A model returned something that is not one answer for each row."""


class HungError(WorkerError):
    """A model did not return and cannot be stopped from inside; the process must end so that it can be replaced."""


@contextmanager
def refusing(what: str, *, but: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn whatever foreign code raises (an estimator, a library, a module of the user) into a refusal.

    Around an `await` the end of the task has to pass: name what it is told by among the errors that do.

    Args:
        what: the failed step; it stands before the cause.
        but: errors that pass unchanged, as a `PackageError` does.
    """
    ours: tuple[type[BaseException], ...] = (PackageError, *but)
    try:
        yield
    except ours:
        raise
    except BaseException as error:
        pass_on_interrupt(error)
        raise PackageError(f"{what} ({remedy(error) or told(error)})") from error
