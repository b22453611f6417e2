"""The error of the simulator."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan that cannot be simulated; the message says why, and what can be."""
