"""Errors of evaluations."""

from __future__ import annotations

from policies.errors import PolicyError


class EvaluationError(PolicyError):
    """A question that this log cannot answer; says what to do instead."""
