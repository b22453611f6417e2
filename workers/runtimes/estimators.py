"""Shared by converters: which library an estimator comes from, and how one is refused. scikit-learn is not imported."""

from __future__ import annotations

from typing import Any

from workers.errors import PackageError


def scikit_name(estimator: Any) -> str:
    """Return the class, if it is scikit-learn's own."""
    cls = type(estimator)
    return cls.__name__ if cls.__module__.startswith("sklearn.") else ""


def refusal(done: str, estimator: Any, reason: str) -> PackageError:
    """Return the error of an estimator that cannot be `done`, e.g. "compiled to arrays"."""
    return PackageError(f"{type(estimator).__name__} cannot be {done} ({reason}): package it without conversion")
