"""Keys, signatures and their check from the command line."""

from __future__ import annotations

import json
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization

from deploy.cli import skysail
from tests.signed_packages import key_in, packaged
from workers import manifest as manifests
from workers.packages.signing import documents, keys, signed
from workers.packages.signing.refusal import SignatureError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(skysail, ["model", *map(str, arguments)])


def told(*arguments: object) -> str:
    """Return what a command says; fails if it does not succeed."""
    found = run(*arguments)
    assert found.exit_code == 0, found.output or found.exception
    return found.output


def refusal(*arguments: object) -> str:
    """Return why a command refuses; fails if it does not."""
    found = run(*arguments)
    assert found.exit_code
    return str(found.exception)


@pytest.mark.parametrize("kind", keys.KINDS)
def test_a_key_is_made_a_package_is_signed_and_verified(place: Path, kind: str) -> None:
    """Three commands, for each kind of key."""
    folder = packaged(place / "package")
    told("keygen", "release", "--kind", kind)
    digest = manifests.digest(folder)
    assert told("sign", folder, "--key", "release.key") == (
        f"signed {folder} with release.key; whoever has its public key checks it by:"
        f" skysail model verify {folder} --keys KEY\n"
    )
    assert manifests.digest(folder) == digest
    assert "is as it was signed with release.pub" in told("verify", folder, "--keys", "release.pub")


def test_the_private_key_is_for_its_owner_alone_and_is_never_shown(place: Path) -> None:
    """Not by any command, nor by what an error shows of it."""
    said = told("keygen", "release") + told("keygen", "other", "--json")
    said += told("sign", packaged(place / "package"), "--key", "release.key", "--json")
    secret = (place / "release.key").read_text()
    assert stat.S_IMODE((place / "release.key").stat().st_mode) == 0o600
    lines = [line for line in secret.splitlines() if "-----" not in line]
    assert lines
    assert not any(line in said for line in lines)
    assert repr(keys.read_private(place / "release.key")).startswith("PrivateKey(")


def test_a_key_with_a_password_is_refused_with_what_to_do(place: Path) -> None:
    """Nobody is asked for one: a command may run where nobody sits."""
    told("keygen", "release")
    key = keys.read_private(place / "release.key").key
    hidden = serialization.BestAvailableEncryption(b"secret")
    (place / "release.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    with pytest.raises(SignatureError, match=r"release.key asks for a password: decrypt it with `openssl pkey`"):
        keys.read_private(place / "release.key")


def test_a_key_is_never_overwritten(place: Path) -> None:
    """Neither of the two files."""
    told("keygen", "release")
    before = (place / "release.key").read_bytes()
    assert "release.pub is there already" in refusal("keygen", "release")
    (place / "release.pub").unlink()
    assert "release.key is there already" in refusal("keygen", "release")
    assert (place / "release.key").read_bytes() == before


def test_a_key_that_others_can_read_is_named(place: Path) -> None:
    """With the command that mends it."""
    told("keygen", "release")
    (place / "release.key").chmod(0o644)
    assert "chmod 600 release.key" in run("sign", packaged(place / "package"), "--key", "release.key").stderr


def test_packaging_signs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a key that is none is refused before anything is written."""
    (place / "my_rules.py").write_text("def predict(rows):\n    return [0] * len(rows)\n")
    monkeypatch.syspath_prepend(place)
    told("keygen", "release")
    given = ("my_rules:predict", "rules", "--name", "rules", "--sample", "[[0.0, 1.0]]", "--sign")
    assert "is no private key" in refusal("package", *given, "release.pub")
    assert not (place / "rules").exists()
    assert "signed with release.key" in told("package", *given, "release.key")
    assert json.loads(told("verify", "rules", "--keys", "release.pub", "--json"))["key"] == "release.pub"


def test_a_package_that_has_changed_since_it_was_made_is_not_signed(place: Path) -> None:
    """Nor one with a file that it does not list: a signature says that somebody has looked."""
    told("keygen", "release")
    folder = packaged(place / "package")
    (folder / "more.bin").write_bytes(b"")
    assert "more.bin is none of the package's files" in refusal("sign", folder, "--key", "release.key")
    (folder / "more.bin").replace(folder / "a.bin")
    assert "SHA-256 differs" in refusal("sign", folder, "--key", "release.key")
    assert not (folder / "model.sig").exists()


def test_what_nobody_could_check_is_not_signed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature that was there stays."""
    told("keygen", "release")
    folder = packaged(place / "package", {f"{number}.bin": b"" for number in range(30)})
    told("sign", folder, "--key", "release.key")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    monkeypatch.setattr(documents, "MOST_BYTES", 3 << 10)
    assert "too many files for a signature (31), or too long names" in refusal("sign", folder, "--key", "release.key")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def _empty(folder: Path) -> None:
    """Leave no key there."""
    (folder / "release.pub").unlink()


def _private(folder: Path) -> None:
    """Leave the private key there, too."""
    (folder.parent / "release.key").replace(folder / "release.pem")


def _broken(folder: Path) -> None:
    """Leave something else there."""
    (folder / "broken.pub").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")


def _several(folder: Path) -> None:
    """Leave two keys there in one file."""
    key = (folder / "release.pub").read_bytes()
    (folder / "both.pem").write_bytes(key + b"\n" + key)


def _late(folder: Path) -> None:
    """Leave a key there with a second one far behind it."""
    key = (folder / "release.pub").read_bytes()
    (folder / "late.pem").write_bytes(key + b"\n" * (64 << 10) + key)


def _other_curve(folder: Path) -> None:
    """Leave a key there of a kind that nobody signs with."""
    ec: Any = sys.modules["cryptography.hazmat.primitives.asymmetric.ec"]
    public = ec.generate_private_key(ec.SECP256K1()).public_key()
    (folder / "other.pub").write_bytes(keys._pem(public))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_empty, "holds no public keys"),
        (_private, "is a private key: keep it elsewhere"),
        (_broken, "is no public key in PEM"),
        (_several, "both.pem holds several keys, and only the first would count: one a file"),
        (_late, "late.pem is larger than 65,536 bytes"),
        (_other_curve, "is no key of ed25519"),
    ],
)
def test_a_folder_of_keys_with_anything_odd_is_refused(place: Path, spoil: Any, why: str) -> None:
    """Rather than passed over: a key that nobody can read would lock out its owner in silence."""
    folder = packaged(place / "package")
    signed.sign(folder, key_in(place / "keys"))
    told("verify", folder, "--keys", "keys")
    spoil(place / "keys")
    assert why in refusal("verify", folder, "--keys", "keys")


def test_without_the_library_the_message_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not sign needs none."""
    monkeypatch.setitem(sys.modules, "workers.packages.signing.keys", None)
    monkeypatch.delattr("workers.packages.signing.keys", raising=False)
    with pytest.raises(SignatureError, match=r"pip install 'skysail\[signing\]'"):
        signed.keys_module()
