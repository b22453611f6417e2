"""Networks packaged from the command line, as `package_torch` does from Python."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.errors import UsageError
from workers.errors import PackageError
from workers.manifest import sha256

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch", reason="torch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
NETWORK = ("--architecture", "tests.toy_nets:mlp", "--argument", "inputs=2", "--argument", "outputs=3")


@pytest.fixture
def states(tmp_path: Path) -> tuple[Path, Path]:
    """Return one network's state as safetensors and as torch.save writes it."""
    nets = importlib.import_module("tests.toy_nets")
    state = nets.seeded(nets.mlp(2, 3)).state_dict()
    safetensors.save_file(state, tmp_path / "net.safetensors")
    torch.save(state, tmp_path / "net.pt")
    return tmp_path / "net.safetensors", tmp_path / "net.pt"


def package(source: Path, folder: Path, *options: str) -> dict[str, Any]:
    """Package a model named m; returns what a script would read."""
    given = ("model", "package", str(source), str(folder), "--name", "m", "--sample", "[[0, 1], [2, 3]]", "--json")
    result = CliRunner().invoke(skysail, [*given, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_network_is_packaged_from_its_state(states: tuple[Path, Path], tmp_path: Path) -> None:
    """From safetensors as it is, from what torch.save wrote with its digest; the packages hold the same weights."""
    safe, plain = states
    first = package(safe, tmp_path / "a", *NETWORK, "--classes", "cat,dog,emu")
    second = package(plain, tmp_path / "b", *NETWORK, "--trust-pickle", sha256(plain))
    assert (first["runtime"], first["classes"]) == ("torch", ["cat", "dog", "emu"])
    assert first["options"]["arguments"] == {"inputs": 2, "outputs": 3}
    assert first["files"] == second["files"]


def test_a_state_that_does_not_fit_is_refused(states: tuple[Path, Path], tmp_path: Path) -> None:
    """Another architecture, none at all, or a pickle that nobody vouches for; nothing is left behind."""
    safe, plain = states
    with pytest.raises(PackageError, match="does not hold the state of"):
        package(safe, tmp_path / "a", *NETWORK[:-1], "outputs=4")
    with pytest.raises(PackageError, match="does not declare that it makes a network"):
        package(safe, tmp_path / "a", "--architecture", "tests.toys:crowd", "--argument", "rows=[]")
    with pytest.raises(UsageError, match="add --architecture"):
        package(safe, tmp_path / "a")
    with pytest.raises(UsageError, match="--trust-pickle"):
        package(plain, tmp_path / "a", *NETWORK)
    with pytest.raises(UsageError, match="write NAME=JSON"):
        package(safe, tmp_path / "a", *NETWORK[:-1], "outputs=three")
    assert not (tmp_path / "a").exists()


def _typed(given: str | type | None) -> Any:
    """Return a factory whose annotation says this."""

    def make() -> Any: ...

    make.__annotations__ = {} if given is None else {"return": given}
    return make


def test_only_what_says_that_it_makes_a_network_is_called() -> None:
    """A package gives the arguments: what they are given to must be known before."""
    makes = importlib.import_module("workers.runtimes.torch").makes_module
    assert all(
        map(makes, (torch.nn.Linear, _typed(torch.nn.Module), _typed("torch.nn.Module"), _typed("nn.Sequential")))
    )
    assert not any(map(makes, (int, print, _typed(None), _typed(int), _typed("int"), _typed("Nothing"))))


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x02]q\x00."])
def test_what_is_no_state_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    """With how to save one."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PackageError, match=r"state"):
        package(path, tmp_path / "a", *NETWORK, "--trust-pickle", sha256(path))


def test_a_head_is_packaged_with_its_trunk(tmp_path: Path) -> None:
    """From two states; a trunk without what builds it is refused, and so is one that may be a pickle."""
    nets = importlib.import_module("tests.toy_nets")
    for name, network in (("trunk", nets.mlp(2, 4)), ("head", nets.mlp(4, 3))):
        safetensors.save_file(nets.seeded(network).state_dict(), tmp_path / f"{name}.safetensors")
    head = ("--architecture", "tests.toy_nets:mlp", "--argument", "inputs=4", "--argument", "outputs=3")
    trunk = ("--trunk", str(tmp_path / "trunk.safetensors"))
    built = (
        "--trunk-architecture",
        "tests.toy_nets:mlp",
        "--trunk-argument",
        "inputs=2",
        "--trunk-argument",
        "outputs=4",
    )
    found = package(tmp_path / "head.safetensors", tmp_path / "a", *head, *trunk, *built)
    assert found["options"]["trunk"]["arguments"] == {"inputs": 2, "outputs": 4}
    assert found["options"]["trunk"]["file"] in found["files"]
    with pytest.raises(UsageError, match="give --architecture, --trunk and --trunk-architecture"):
        package(tmp_path / "head.safetensors", tmp_path / "b", *head, *trunk)
    (tmp_path / "trunk.pt").write_bytes(b"")
    with pytest.raises(UsageError, match="save the state with"):
        package(tmp_path / "head.safetensors", tmp_path / "b", *head, "--trunk", str(tmp_path / "trunk.pt"), *built)
