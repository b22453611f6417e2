"""What can go wrong with a model.

WorkerError
├── PackageError    the package is wrong, incomplete or not trusted: nothing was loaded    (operator, not retryable)
├── OutputError     the model's answer is not one answer for each row: the rows are FAILED (model)
└── HungError       predict did not come back in time: the process must be replaced        (model, retryable)
"""

from __future__ import annotations


class WorkerError(Exception):
    """Anything wrong with a model or its worker."""


class PackageError(WorkerError):
    """A model package was refused; the message says what to do."""


class OutputError(WorkerError):
    """A model returned something that is not one answer for each row."""


class HungError(WorkerError):
    """A model did not return and cannot be stopped from inside; the process must end so that it can be replaced."""
