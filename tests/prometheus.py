"""Prometheus and its tool, of the machine or of Debian's package: they say what rules and charts are worth."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_KEPT = Path.home() / ".cache/skysail/prometheus"
_PATIENCE_S = 60


def program(name: str) -> str:
    """Return `prometheus` or `promtool`; skips the test where the machine has none and Debian's cannot be had."""
    if (found := shutil.which(name)) is not None:
        return found
    place = _KEPT / "usr/bin" / name
    if not place.is_file():
        try:
            _fetch()
        except (OSError, subprocess.SubprocessError, ValueError):
            pytest.skip(f"this machine has no {name}, and Debian's package cannot be had")
    return str(place)


def _fetch() -> None:
    """Unpack Debian's package, whole or not at all: two tests may want it at once."""
    _KEPT.parent.mkdir(parents=True, exist_ok=True)
    scratch = _KEPT.with_suffix(f".{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        order = ["apt-get", "download", "prometheus"]
        subprocess.run(order, cwd=scratch, check=True, capture_output=True, timeout=_PATIENCE_S)
        (package,) = scratch.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, scratch], check=True, capture_output=True, timeout=_PATIENCE_S)
        if not _KEPT.exists():
            scratch.rename(_KEPT)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
