"""What the project says about itself is true: packaged files, the example in CONTRIBUTING, the version."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Read from the checkout only, never by an installed package.
CHECKOUT_ONLY = {Path("deploy/compose.yaml"), Path("deploy/constraints.txt")}
RESEARCH = ROOT / "load" / "research"


def test_every_data_file_of_a_package_is_installed() -> None:
    """A page or schema that no pattern matches would be missing outside a checkout."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    present = {file for package in packages for file in package.rglob("*") if _is_data(file)}
    installed = {file for package, globs in patterns.items() for glob in globs for file in (ROOT / package).glob(glob)}
    assert {file.relative_to(ROOT) for file in present - installed} == CHECKOUT_ONLY


def _is_data(file: Path) -> bool:
    compiled = {".py", ".pyc", ".pyx", ".c", ".so"}
    return file.is_file() and file.suffix not in compiled and RESEARCH not in file.parents


def test_comparisons_and_tests_are_in_no_wheel() -> None:
    """An installed package holds what its users run."""
    find = PROJECT["tool"]["setuptools"]["packages"]["find"]
    assert find["exclude"] == ["load.research*"]
    assert not any(fnmatch("tests", pattern) for pattern in find["include"])


@pytest.mark.parametrize("package", sorted(PROJECT["tool"]["setuptools"]["package-data"]))
def test_every_pattern_of_package_data_finds_something(package: str) -> None:
    """A pattern that matches nothing is a file that was moved."""
    assert all(any((ROOT / package).glob(glob)) for glob in PROJECT["tool"]["setuptools"]["package-data"][package])


def test_the_example_in_contributing_passes() -> None:
    """The operator test that newcomers copy runs as it stands there."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    (test,) = [name for name in names if name.startswith("test_")]
    names[test]()


def test_the_changelog_tells_of_this_version() -> None:
    """Nobody releases a version without saying what is in it."""
    assert PROJECT["project"]["version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_files_that_ci_names_are_there() -> None:
    """A test that was moved is found where the log says."""
    named = re.findall(r"\btests/\S+\.py\b", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert named
    assert all((ROOT / name).is_file() for name in named)


def test_image_and_package_have_one_version() -> None:
    """The compose file names the image after the version of the package."""
    compose = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
    assert re.findall(r"image: skysail:(\S+)", compose) == [PROJECT["project"]["version"]]
