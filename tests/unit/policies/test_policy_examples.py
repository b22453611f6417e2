"""The examples in the docstrings of `policies` say what is true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import policies


@pytest.mark.parametrize("name", sorted(module.name for module in pkgutil.iter_modules(policies.__path__)))
def test_examples_run(name: str) -> None:
    """Every example of the module gives what it shows."""
    assert doctest.testmod(importlib.import_module(f"policies.{name}")).failed == 0
