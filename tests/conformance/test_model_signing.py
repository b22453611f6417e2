"""OpenSSF's own tool, `model-signing`, is asked about our signatures, and we are asked about its: both have to agree.

It knows no Ed25519, so the curves are what both know.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.signed_packages import FILES, key_in, packaged, trusted
from workers.packages.signing.keys import ED25519, KINDS
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.signed import sign
from workers.packages.signing.statement import SIGNATURE_FILE

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("OpenSSL", reason="model-signing needs pyopenssl, which it does not require itself")
pytest.importorskip("model_signing", reason="OpenSSF's tool is not installed: pip install model-signing pyopenssl")
CURVES = [kind for kind in KINDS if kind != ED25519]


def theirs(part: str) -> Any:
    """Return a part of their library, which has no types."""
    return importlib.import_module(f"model_signing.{part}")


def verified_by_them(folder: Path, public: Path) -> None:
    """Verify a package with their tool.

    Raises:
        ValueError: they refuse it.
    """
    theirs("verifying").Config().use_elliptic_key_verifier(public_key=public).verify(folder, folder / SIGNATURE_FILE)


@pytest.mark.parametrize("kind", CURVES)
def test_they_verify_what_we_sign(tmp_path: Path, kind: str) -> None:
    """And refuse it once a file is another one."""
    folder, key = packaged(tmp_path / "package"), key_in(tmp_path / "keys", kind=kind)
    sign(folder, key)
    verified_by_them(folder, tmp_path / "keys" / "release.pub")
    (folder / "a.bin").write_bytes(b"others")
    with pytest.raises(ValueError, match=r"a\.bin"):
        verified_by_them(folder, tmp_path / "keys" / "release.pub")


@pytest.mark.parametrize("kind", CURVES)
def test_we_verify_what_they_sign(tmp_path: Path, kind: str) -> None:
    """With a key that we have made; and we refuse it once another file is there."""
    folder, _ = packaged(tmp_path / "package"), key_in(tmp_path / "keys", kind=kind)
    hashing = theirs("hashing").Config().set_ignored_paths(paths=[folder / SIGNATURE_FILE])
    signer = theirs("signing").Config().use_elliptic_key_signer(private_key=tmp_path / "release.key")
    signer.set_hashing_config(hashing).sign(folder, folder / SIGNATURE_FILE)
    assert trusted(folder, tmp_path / "keys", "digits@1") == FILES
    (folder / "more.bin").write_bytes(b"")
    with pytest.raises(SignatureError, match=r"more\.bin"):
        trusted(folder, tmp_path / "keys")


@pytest.mark.parametrize("kind", CURVES)
def test_neither_takes_the_signature_of_another_key(tmp_path: Path, kind: str) -> None:
    """Both say so."""
    folder, key = packaged(tmp_path / "package"), key_in(tmp_path / "keys", kind=kind)
    key_in(tmp_path / "others", "other", kind)
    sign(folder, key)
    with pytest.raises(ValueError, match="Key mismatch"):
        verified_by_them(folder, tmp_path / "others" / "other.pub")
    with pytest.raises(SignatureError, match="foreign-key"):
        trusted(folder, tmp_path / "others")


def test_they_say_that_they_do_not_know_ed25519(tmp_path: Path) -> None:
    """Once they do, this test says so, and the page of signatures has to be changed."""
    folder, key = packaged(tmp_path / "package"), key_in(tmp_path / "keys")
    sign(folder, key)
    with pytest.raises(AttributeError, match="curve"):
        verified_by_them(folder, tmp_path / "keys" / "release.pub")


def test_a_model_that_they_have_cut_into_shards_is_refused(tmp_path: Path) -> None:
    """Its signature says nothing about whole files."""
    folder, _ = packaged(tmp_path / "package"), key_in(tmp_path / "keys", kind="p-256")
    hashing = theirs("hashing").Config().use_shard_serialization().set_ignored_paths(paths=[])
    signer = theirs("signing").Config().use_elliptic_key_signer(private_key=tmp_path / "release.key")
    signer.set_hashing_config(hashing).sign(folder, folder / SIGNATURE_FILE)
    with pytest.raises(SignatureError, match="wrong-kind"):
        trusted(folder, tmp_path / "keys")
