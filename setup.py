"""What is compiled: every `.pyx` of the packages. Without a compiler Skysail runs on the Python beside it.

All else about the project stands in pyproject.toml.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-O2", "-ffp-contract=off"]  # no product and sum in one: learning gives the last bit that Python gives
PACKAGES = ("schemas", "policies", "streams", "workers", "deploy", "load")


def extension(source: Path) -> Extension:
    """Return what is built of a `.pyx`, whose path is from here."""
    name = ".".join(source.with_suffix("").parts)
    libraries = ["m"] if os.name == "posix" else []
    return Extension(name, [source.as_posix()], libraries=libraries, extra_compile_args=FLAGS, optional=True)


setup(ext_modules=[extension(source) for package in PACKAGES for source in sorted(Path(package).rglob("*.pyx"))])
