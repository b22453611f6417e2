"""Signs packages, and refuses those that nobody has signed who may.

    model.sig ─▶ bundle ─▶ a key of ours verifies it ─▶ statement: manifest.json has this digest, other files those
    manifest.json, read once ─▶ its digest, and those that it lists ─▶ equal to the statement's, name by name

Loading then goes by the manifest that was read here, and hashes every file as it reads it (`packages.sealed`). So what
is loaded is what was verified, whatever happens to the folder in between.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers import manifest as manifests
from workers.errors import PackageError
from workers.extras import install
from workers.manifest import MANIFEST
from workers.packages import sealed
from workers.packages.signing import bundle, documents, statement
from workers.packages.signing.bundle import SignatureBundle
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.statement import SIGNATURE_FILE, SignedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from workers.manifest import Pinned
    from workers.packages.signing.keys import PrivateKey, PublicKey

_SHOWN: Final = 5  # names of files
_MENDED: Final = f"what it says of them may take {documents.MOST_BYTES >> 20} MiB; package the model in fewer files"


def sign(folder: Path, key: PrivateKey) -> Path:
    """Sign a package as it lies there; returns the file of the signature, which replaces one that was there.

    Raises:
        PackageError: it is no package, a file has changed since it was packaged, there are others, or too many.
    """
    found = manifests.pinned(folder)
    sealed.verify(folder, found.manifest)
    _require_no_others(folder, _files(found))
    content = _signature(found, key)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o644)
        return Path(file.name).replace(folder / SIGNATURE_FILE)
    except OSError as error:
        raise PackageError(f"{folder} cannot be signed ({error.strerror}): check who may write there") from error


def _signature(found: Pinned, key: PrivateKey) -> bytes:
    """Return the bundle of a package, read back as whoever checks it will read it."""
    files = _files(found)
    payload = statement.written(SignedFiles(f"{found.manifest.name}@{found.manifest.version}", files))
    content = bundle.written(SignatureBundle(key.public.hint, payload, key.sign(bundle.signed_bytes(payload))))
    try:
        _require_same(statement.read(bundle.read(content).payload).files, files)
    except SignatureError as error:
        if error.reason != "too-large":
            raise
        told = f"too many files for a signature ({len(files):,}), or too long names: {_MENDED}"
        raise SignatureError(error.reason, told) from error
    return content


def require_signed(folder: Path, found: Pinned, place: Path | str, version: str = "") -> PublicKey:
    """Refuse a package that is not signed, as it lies there, by the owner of a key; returns the key.

    Args:
        folder: the package.
        found: its manifest as it was read, and as it will be loaded.
        place: of the public keys: a folder, or one file.
        version: MODEL@VERSION that it has to be; empty = any.

    Raises:
        SignatureError: it is not; the message names the reason, and what to do.
    """
    try:
        return _verified(folder, found, Path(place), version)
    except SignatureError as error:
        place = "" if str(folder) in error.told else f" ({folder})"  # last: what is told on a page may be cut off
        raise SignatureError(error.reason, f"{error.told}{place}") from error


def _verified(folder: Path, found: Pinned, place: Path, version: str) -> PublicKey:
    known = bundle.read(_content(folder))
    public: Mapping[str, PublicKey] = keys_module().read_public(place)
    key = public.get(known.hint)
    if key is None:
        raise SignatureError(
            "foreign-key",
            f"have it signed by the owner of {_shown([each.name for each in public.values()])}, or copy the public key"
            f" that it is signed with ({known.hint[:16]}) to {place}",
        )
    if not key.verifies(known.signature, bundle.signed_bytes(known.payload)):
        raise SignatureError("bad-signature", f"the signature is not by {key.name}: sign the package again")
    _require_same(statement.read(known.payload).files, _files(found))
    _require_no_others(folder, _files(found))
    named = f"{found.manifest.name}@{found.manifest.version}"
    if version and version != named:
        raise SignatureError("other-version", f"{version} was deployed, but {named} was signed: add the model again")
    return key


def keys_module() -> ModuleType:
    """Import what computes with keys.

    Raises:
        SignatureError: it is not installed.
    """
    try:
        from workers.packages.signing import keys
    except ModuleNotFoundError as error:
        raise SignatureError("no-library", f"signatures need {error.name}: {install('signing')}") from error
    return keys


def _files(found: Pinned) -> dict[str, str]:
    """Return the digest of each file of a package, by name."""
    return {**found.manifest.files, MANIFEST: found.digest}


def _content(folder: Path) -> bytes:
    if not os.path.lexists(folder / SIGNATURE_FILE):
        raise SignatureError(
            "unsigned",
            f"it has no {SIGNATURE_FILE}: skysail model sign {folder} --key KEY",
        )
    try:
        with sealed.opened(folder, SIGNATURE_FILE) as file:
            return file.read(documents.MOST_BYTES + 1)
    except PackageError as error:
        raise SignatureError("unreadable", str(error)) from error


def _require_same(signed: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Refuse files that were not signed so, and signed ones that are not there."""
    changed = [name for name in there.keys() & signed.keys() if there[name] != signed[name]]
    for names, told in (
        (changed, "is not as it was signed"),
        (there.keys() - signed.keys(), "was not signed"),
        (signed.keys() - there.keys(), "was signed and is not in the manifest"),
    ):
        if names:
            raise SignatureError("other-files", f"{_shown(names)} {told}: copy the package again, or sign it again")


def _require_no_others(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse what lies in a package's folder and is none of its files, or a link; none of it would be read."""
    found, links = set(), set()
    for path, folders, names in os.walk(folder):
        inside = os.path.relpath(path, folder)
        found |= {os.path.normpath(os.path.join(inside, name)) for name in names}  # noqa: PTH118 - there may be many
        both = (os.path.normpath(os.path.join(inside, name)) for name in (*names, *folders))  # noqa: PTH118
        links |= {name for name in both if (folder / name).is_symlink()}
    if links:
        raise SignatureError("other-files", f"{_shown(links)} is a link, which is not followed: copy the file there")
    if others := found - files.keys() - {SIGNATURE_FILE}:
        raise SignatureError("other-files", f"{_shown(others)} is none of the package's files: remove it")


def _shown(names: set[str] | list[str]) -> str:
    first = ", ".join([name[:80] for name in sorted(names)[:_SHOWN]])
    return f"{first} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else first
