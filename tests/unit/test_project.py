"""What the project says about itself is true: packaged files, the example in CONTRIBUTING, the version."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from deploy.process.installed import EXTENSIONS

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Read from the checkout only, never by an installed package.
CHECKOUT_ONLY = {Path("deploy/compose.yaml"), Path("deploy/constraints.txt")}
CHECKOUT_FOLDERS = (Path("deploy/k8s/chart"), Path("deploy/monitoring"))
RESEARCH = ROOT / "load" / "research"


def test_every_data_file_of_a_package_is_installed() -> None:
    """A page or schema that no pattern matches would be missing outside a checkout."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    present = {file for package in packages for file in package.rglob("*") if _is_data(file)}
    installed = {file for package, globs in patterns.items() for glob in globs for file in _matching(package, glob)}
    absent = {file.relative_to(ROOT) for file in present - installed}
    assert {file for file in absent if not any(map(file.is_relative_to, CHECKOUT_FOLDERS))} == CHECKOUT_ONLY


def _matching(package: str, glob: str) -> list[Path]:
    """Return what a pattern of package data finds; "*" stands for every package, however deep."""
    return [*(ROOT.glob(f"[!.]*/**/{glob}") if package == "*" else (ROOT / package).glob(glob))]


def _is_data(file: Path) -> bool:
    compiled = {".py", ".pyc", ".pyx", ".c", ".so"}
    return file.is_file() and file.suffix not in compiled and RESEARCH not in file.parents


def test_no_two_classes_of_the_product_share_a_name() -> None:
    """Who reads one finds no other one by its name; an underscore tells nothing apart."""
    places: dict[str, list[str]] = {}
    for package in ("schemas", "policies", "streams", "workers", "deploy"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_comparisons_and_tests_are_in_no_wheel() -> None:
    """An installed package holds what its users run."""
    find = PROJECT["tool"]["setuptools"]["packages"]["find"]
    assert find["exclude"] == ["load.research*"]
    assert not any(fnmatch("tests", pattern) for pattern in find["include"])


@pytest.mark.parametrize("package", sorted(PROJECT["tool"]["setuptools"]["package-data"]))
def test_every_pattern_of_package_data_finds_something(package: str) -> None:
    """A pattern that matches nothing is a file that was moved."""
    assert all(_matching(package, glob) for glob in PROJECT["tool"]["setuptools"]["package-data"][package])


def test_everything_that_can_be_compiled_is_built_and_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By setup.py, by the Makefile when it changes, and by the check of images and wheels."""
    sources, headers = _found("pyx"), _found("pxd")
    assert sources
    assert _built(monkeypatch) == {_module(source): source for source in sources}
    assert {*EXTENSIONS} == {*map(_module, sources)}
    assert {*_made_from()} == {*sources, *headers, "setup.py"}


def _found(suffix: str) -> list[str]:
    """Return all files of a kind that packages hold."""
    roots = [path.parent for path in ROOT.glob("*/__init__.py")]
    return [str(path.relative_to(ROOT)) for root in roots for path in root.rglob(f"*.{suffix}")]


def _module(source: str) -> str:
    return source.removesuffix(".pyx").replace("/", ".")


def _built(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what setup.py builds, and of what; setuptools, which need not be here, is told to build nothing."""
    told: dict[str, Any] = {}
    tools = SimpleNamespace(Extension=lambda name, sources, **_: (name, *sources), setup=told.update)
    monkeypatch.setitem(sys.modules, "setuptools", tools)  # type: ignore[arg-type] # no module, but looked up as one
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return dict(told["ext_modules"])


def _made_from() -> list[str]:
    """Return what the Makefile builds the compiled modules from."""
    asked = "include Makefile\nasked: ; @echo $(COMPILED)\n"
    command = ["make", "--no-print-directory", "-f", "-", "asked"]
    return subprocess.run(command, input=asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


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


def test_the_changelog_keeps_its_form() -> None:
    """Release notes are cut out of it by these headings: those of Keep a Changelog."""
    heads = re.findall(r"^(##+) (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {words for level, words in heads if level == "###"} <= kinds
    versions = [words for level, words in heads if level == "##"]
    assert versions[0].startswith("[Unreleased]") or re.match(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$", versions[0])


def test_release_notes_are_what_the_changelog_says_of_a_version() -> None:
    """And a version without a number and a date has none: it is not released by accident."""
    notes = runpy.run_path(str(ROOT / ".ci" / "notes"))["notes"]
    text = "## [0.2.0] - 2027-01-31\n\n### Fixed\n\n- One.\n\n## [0.1.0] - 2026-12-01\n\n### Added\n\n- All.\n"
    assert notes("0.2.0", text) == "### Fixed\n\n- One."
    assert notes("0.1.0", text) == "### Added\n\n- All."
    with pytest.raises(SystemExit, match="YEAR-MONTH-DAY"):
        notes("0.1.0", "## [Unreleased]: 0.1.0\n\n- All.\n")


def test_the_workflow_of_a_release_names_what_is_there() -> None:
    """Its steps are commands of this project; nobody finds a wrong one before the day of a release."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    run = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert [words for words in run if words.startswith(".ci/") and not (ROOT / words.split()[0]).is_file()] == []
    assert "make docs" in run
    assert workflow["jobs"]["release"]["needs"] == ["check", "wheels"]


def test_readme_is_one_short_page() -> None:
    """What is longer stands in docs/; the pictures are small."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    assert all((ROOT / "docs" / name).stat().st_size < 150_000 for name in ("demo.svg", "page.png"))


def test_the_files_that_ci_names_are_there() -> None:
    """A test that was moved is found where the log says."""
    named = re.findall(r"\btests/\S+\.py\b", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert named
    assert all((ROOT / name).is_file() for name in named)


def test_image_and_package_have_one_version() -> None:
    """The compose file names the image after the version of the package."""
    compose = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
    assert re.findall(r"image: skysail:(\S+)", compose) == [PROJECT["project"]["version"]]


def test_the_metadata_names_the_pythons_that_are_built() -> None:
    """A registry shows them; wheels are built for each, and `requires-python` begins with the first."""
    project = PROJECT["project"]
    python = "Programming Language :: Python :: "
    named = [one.removeprefix(python) for one in project["classifiers"] if one.startswith(f"{python}3.")]
    built = [re.sub(r"cp3(\d+)-\*", r"3.\1", one) for one in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert named == built
    assert project["requires-python"] == f">={named[0]}"
    assert (ROOT / project["readme"]).read_text(encoding="utf-8").startswith("# Skysail")
    assert all((ROOT / name).is_file() for name in project["license-files"])
    assert not [each for each in project["classifiers"] if each.startswith("License ::")]  # the expression says it


def test_every_package_says_that_it_is_typed() -> None:
    """A type checker looks into no installed package that does not."""
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    assert packages
    assert all((package / "py.typed").is_file() for package in packages)
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["*"]


def test_the_workflows_run_what_is_there() -> None:
    """The one runs what a developer runs; the other publishes without a password."""
    folder = ROOT / ".github" / "workflows"
    check, publish = (
        yaml.safe_load((folder / f"{name}.yml").read_text(encoding="utf-8")) for name in ("ci", "publish")
    )
    said = [step.get("run", "") for job in check["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in said
    assert all((ROOT / word).is_file() for line in said for word in re.findall(r"\.ci/\w+", line))
    assert publish["jobs"]["publish"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert "secrets." not in (folder / "publish.yml").read_text(encoding="utf-8")
