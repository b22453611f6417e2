"""Tests of how a Java version is read."""

from __future__ import annotations

import pytest

from deploy.local.java import major_version


@pytest.mark.parametrize(
    ("printed", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('java version "1.8.0_392"', 8),
        ("sh: java: not found", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(printed: str, major: int | None) -> None:
    """Old and new numbering are understood; anything else is no version."""
    assert major_version(printed) == major
