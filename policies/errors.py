"""Errors of the arithmetic, and whose fault each is.

PolicyError        configuration or caller: unknown name, unknown or impossible parameter; never worth a retry
└── LossError      bad input: this label cannot be compared with this answer; the record is a dead letter
"""

from __future__ import annotations


class PolicyError(ValueError):
    """A policy or controller that cannot exist, or a question it cannot answer."""


class LossError(PolicyError):
    """A label that does not fit the answer or the kind of loss."""


def require(holds: bool, message: str) -> None:
    """Raise `PolicyError(message)` unless the condition holds; for parameters, which come from outside."""
    if not holds:
        raise PolicyError(message)
