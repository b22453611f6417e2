"""Dependencies by need: the client needs little, and what is not installed is named with the command to type."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deploy.cli import VERBS, skysail
from deploy.errors import UsageError
from deploy.process.installed import NEEDS, require_installed
from deploy.process.interrupts import named_extras
from workers.errors import PackageError, refusing
from workers.extras import EXTRAS, remedy
from workers.packages.variants import runtime_module

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = (ROOT / "deploy/constraints.txt").read_text(encoding="utf-8")
OURS = {"schemas", "policies", "streams", "workers", "deploy", "load"}
# What aiokafka, fastavro and numpy bring themselves.
BROUGHT = {"async_timeout", "packaging", "typing_extensions"}
CLIENT = {"aiokafka", "cramjam", "fastavro", "numpy", *BROUGHT}
# Its process lets in nothing else: a module that it imports and that is not here is as one that is not installed.
ALONE = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in {allowed} or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)

sys.path.insert(0, {root!r})
sys.meta_path.insert(0, Only())
"""


def alone(program: str, allowed: set[str] = CLIENT | OURS | {"skysail"}) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has no more than these modules and its own."""
    begin = ALONE.format(allowed=sorted(allowed), root=str(ROOT))
    return subprocess.run(
        [sys.executable, "-P", "-c", begin + program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_client_needs_what_the_client_depends_on_and_no_more() -> None:
    """No command line, no settings, no store, no page, no model library."""
    done = alone(
        "from skysail import Client, SyncClient, Codec\nCodec()\nClient('h:9')\nSyncClient('h:9')\nprint('ok')"
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_the_command_says_which_extra_it_needs() -> None:
    """One line instead of a traceback."""
    done = alone("from deploy.cli import main\nmain()")
    assert done.returncode == 1
    assert re.fullmatch(r"skysail: this needs \w+: pip install 'skysail\[cli\]'\n", done.stderr)


@pytest.mark.parametrize(
    ("verb", "extra"), [("run", "worker"), ("demo", "bench"), ("load", "bench")], ids=lambda word: word
)
def test_a_verb_says_which_extra_it_needs(verb: str, extra: str) -> None:
    """Whoever installs that has all that the verb imports, and not the next thing that is missing."""
    command = {module for module, of in EXTRAS.items() if of == "cli"}
    more = {"pydantic_core", "annotated_types", "typing_inspection", "dateutil", "pygments", "markdown_it", "mdurl"}
    done = alone(
        f"import sys\nsys.argv = ['skysail', {verb!r}, '--help']\nfrom deploy.cli import main\nmain()",
        CLIENT | OURS | command | more,
    )
    assert done.returncode == 1
    assert done.stderr.endswith(f": pip install 'skysail[{extra}]'\n")


def test_no_verb_of_the_path_needs_what_draws_and_measures() -> None:
    """The first five pages install no more than roles need: what an estimate says is words, and its plots are apart."""
    verbs = sorted({verb.module for verb in VERBS.values() if verb.extra != "bench"} | {"deploy.cli.evaluate"})
    drawing = {module for module, extra in EXTRAS.items() if extra == "bench"}
    refused = f"import sys\nsys.modules.update(dict.fromkeys({sorted(drawing)}))\nsys.path.insert(0, {str(ROOT)!r})\n"
    imports = "".join(f"import {module}\n" for module in verbs)
    done = subprocess.run(
        [sys.executable, "-P", "-c", refused + imports], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_training_a_parity_model_says_that_it_needs_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a linear model, too, of which nothing is trained; the module that is looked for inside is nobody's matter."""
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "rows.npy").touch()
    arguments = ["parity", "train", str(tmp_path), str(tmp_path / "made"), "--rows", str(tmp_path / "rows.npy")]
    done = CliRunner().invoke(skysail, arguments)
    assert done.exit_code != 0
    assert "pip install 'skysail[torch]'" in str(done.exception)


def test_a_runtime_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker says of a package that it cannot run."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "workers.runtimes.onnx", raising=False)
    with pytest.raises(PackageError, match=r"pip install 'skysail\[onnx\]'"):
        runtime_module("onnx")


def test_a_library_that_is_missed_while_a_model_loads_is_named_with_its_extra() -> None:
    """The reader of estimators is imported only when a package holds one."""
    advice = r"the forest cannot be loaded \(this needs skops: pip install 'skysail\[sklearn\]'\)"
    with pytest.raises(PackageError, match=advice), refusing("the forest cannot be loaded"):
        raise ModuleNotFoundError("No module named 'skops'", name="skops")


def test_a_role_whose_packages_are_not_there_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the supervisor would start it again and again."""
    monkeypatch.setattr("deploy.process.installed.find_spec", lambda name: None if name == "faust" else object())
    require_installed(("selection", "worker"))
    with pytest.raises(UsageError, match=r"role control needs faust: pip install 'skysail\[control\]'"):
        require_installed(("selection", "control"))


def test_what_is_missing_and_no_extra_brings_is_an_error_as_any_other() -> None:
    """A module of the user's that is not there."""
    error = ModuleNotFoundError("No module named 'mine'", name="mine")
    assert not remedy(error)
    with pytest.raises(ModuleNotFoundError, match="mine"), named_extras():
        raise error


def test_every_extra_that_is_named_exists() -> None:
    """In the table of modules, of verbs and of roles."""
    named = {*EXTRAS.values(), *(verb.extra for verb in VERBS.values()), *(EXTRAS[module] for module in NEEDS.values())}
    assert named <= PROJECT["optional-dependencies"].keys()


def test_every_module_that_is_imported_is_brought_by_the_extra_that_is_named() -> None:
    """Or by the client's own dependencies; comparisons with other systems have environments of their own."""
    missing = sorted(imported() - CLIENT - EXTRAS.keys() - OURS)
    assert not missing
    distributions = packages_distributions()
    for module, extra in EXTRAS.items():
        if extra == "hummingbird" or module not in distributions:
            continue  # it cannot be installed beside `onnx`
        brought = {normal(name) for name in distributions[module]}
        through = {
            "PIL": "matplotlib",
            "aiohttp": "faust-streaming",
            "mode": "faust-streaming",
            "joblib": "scikit-learn",
            "pydantic_core": "pydantic",
        }
        assert brought & flat(extra) or through.get(module) in flat(extra), module


def test_every_dependency_is_pinned_where_it_is_measured() -> None:
    """Certificates age: they alone are the newest."""
    extras = {name for extra in PROJECT["optional-dependencies"] for name in flat(extra)}
    wanted = {*map(name_of, PROJECT["dependencies"]), *extras} - {"certifi"}
    pinned = {line.partition("==")[0] for line in PINS.splitlines() if "==" in line}
    assert pinned - wanted == {
        "dill",
        "jsonschema",
        "onnxconverter-common",
        "opentelemetry-proto",
        "scipy",
    }  # others bring it
    assert not wanted - pinned


def test_no_application_gets_exact_versions() -> None:
    """A range each, with an upper bound: what was not tried is not promised."""
    for requirement in PROJECT["dependencies"]:
        assert re.fullmatch(r"[a-z0-9-]+>=[0-9.]+,<[0-9.]+", requirement)


def flat(extra: str) -> set[str]:
    """Return the names of what an extra installs, through the extras that it stands on."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        inner = re.fullmatch(r"skysail\[(.*)\]", requirement)
        found |= {name for each in inner[1].split(",") for name in flat(each)} if inner else {name_of(requirement)}
    return found


def name_of(requirement: str) -> str:
    """Return the name in front of the bounds."""
    return normal(re.split(r"[<>=;\[]", requirement)[0])


def normal(name: str) -> str:
    """Return the one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> set[str]:
    """Return the modules of others that the installed packages import, lazily or not."""
    files = [file for package in OURS for file in (ROOT / package).rglob("*.py") if "research" not in file.parts]
    return {name.partition(".")[0] for file in files for name in imports_of(file)} - sys.stdlib_module_names


def imports_of(file: Path) -> Iterator[str]:
    """Return what one file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
