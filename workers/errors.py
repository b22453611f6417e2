"""What can go wrong with a model.

WorkerError
├── PackageError    the package is wrong, incomplete or not trusted: nothing was loaded    (operator, not retryable)
├── OutputError     the model's answer is not one answer for each row: the rows are FAILED (model)
└── HungError       predict did not come back in time: the process must be replaced        (model, retryable)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from workers.extras import remedy

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorkerError(Exception):
    """Anything wrong with a model or its worker."""


class PackageError(WorkerError):
    """A model package was refused; the message says what to do."""


class OutputError(WorkerError):
    """A model returned something that is not one answer for each row."""


class HungError(WorkerError):
    """A model did not return and cannot be stopped from inside; the process must end so that it can be replaced."""


@contextmanager
def refusing(what: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn any error of foreign code (an estimator, a library, a module of the user) into a refusal.

    Args:
        what: the failed step; it stands before the cause.
        but: errors that pass unchanged, as a `PackageError` does.
    """
    ours: tuple[type[Exception], ...] = (PackageError, *but)
    try:
        yield
    except ours:
        raise
    except (Exception, SystemExit) as error:
        why = remedy(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PackageError(f"{what} ({why})") from error
