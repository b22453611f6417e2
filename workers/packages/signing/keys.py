"""Keys that packages are signed with: Ed25519, and the curves P-256, P-384 and P-521 for other tools' sake.

The kind of a key decides how it signs: ECDSA takes the hash of its curve's size, as Sigstore has it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from workers.packages.signing.refusal import SignatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_Private: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
_Public: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey

ED25519: Final = "ed25519"
_CURVES: Final[Mapping[str, Callable[[], ec.EllipticCurve]]] = {
    "p-256": ec.SECP256R1,
    "p-384": ec.SECP384R1,
    "p-521": ec.SECP521R1,
}
KINDS: Final = (ED25519, *_CURVES)
_HASHES: Final[Mapping[str, Callable[[], hashes.HashAlgorithm]]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}
SUFFIXES: Final = (".pub", ".pem")
_MOST_BYTES: Final = 64 << 10
_MOST_KEYS: Final = 256


class PublicKey(NamedTuple):
    """A key that signatures are checked by.

    Attributes:
        name: of its file.
        hint: SHA-256 of it as PEM, hexadecimal: its name in signatures.
        key: itself.
    """

    name: str
    hint: str
    key: _Public

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Tell whether a signature of data was made with the private part of this key."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, data)
            else:
                self.key.verify(signature, data, _ecdsa(self.key.curve))
        except InvalidSignature:
            return False
        return True


class PrivateKey(NamedTuple):
    """A key that signs; it is shown as its public part."""

    public: PublicKey
    key: _Private

    def __repr__(self) -> str:
        """Return it without what is secret."""
        return f"PrivateKey({self.public.hint})"

    def sign(self, data: bytes) -> bytes:
        """Return a signature of data."""
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return self.key.sign(data)
        return self.key.sign(data, _ecdsa(self.key.curve))


def generated(kind: str, name: str) -> PrivateKey:
    """Return a new key.

    Args:
        kind: one of `KINDS`.
        name: of its public part, for people.
    """
    if kind == ED25519:
        return _private(ed25519.Ed25519PrivateKey.generate(), name)
    return _private(ec.generate_private_key(_CURVES[kind]()), name)


def write(key: PrivateKey, private: Path, public: Path) -> None:
    """Write a key to two new files, the private one for its owner alone.

    Raises:
        FileExistsError: one of them is there: a key is never overwritten.
    """
    if public.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(public))
    none = serialization.NoEncryption()
    secret = key.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)
    _write(private, secret, 0o600)
    _write(public, _pem(key.public.key), 0o644)


def read_private(file: Path) -> PrivateKey:
    """Read a key that signs.

    Raises:
        SignatureError: the file holds none that can.
    """
    content = _content(file)
    try:
        found = serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise SignatureError("no-keys", f"{file} asks for a password: decrypt it with `openssl pkey`") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError("no-keys", f"{file} is no private key: make one with `skysail model keygen`") from error
    if not isinstance(found, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) or not _is_known(found):
        raise SignatureError("no-keys", f"{file} is no key of {', '.join(KINDS)}: make one with `skysail model keygen`")
    return _private(found, file.name)


def read_public(place: Path) -> Mapping[str, PublicKey]:
    """Read the public keys of a folder, or of one file, by their hints.

    Raises:
        SignatureError: there are none, or a file among them is something else.
    """
    files = sorted(_files(place))
    if not files:
        raise SignatureError(
            "no-keys", f"{place} holds no public keys (*.pub, *.pem): copy those there whose packages may be loaded"
        )
    if len(files) > _MOST_KEYS:
        raise SignatureError("no-keys", f"{place} holds more than {_MOST_KEYS} keys: leave those in use there")
    keys = map(_read_public, files)
    return {key.hint: key for key in keys}


def _files(place: Path) -> Iterator[Path]:
    try:
        if place.is_file():
            yield place
            return
        yield from (file for file in place.iterdir() if file.suffix in SUFFIXES and not file.name.startswith("."))
    except OSError as error:
        raise SignatureError(
            "no-keys", f"{place} cannot be read ({error.strerror}): name a folder of public keys"
        ) from error


def _read_public(file: Path) -> PublicKey:
    content = _content(file)
    if b"PRIVATE KEY" in content:
        raise SignatureError(
            "no-keys", f"{file} is a private key: keep it elsewhere, and leave public ones there alone"
        )
    if content.count(b"-----BEGIN") > 1:
        raise SignatureError("no-keys", f"{file} holds several keys, and only the first would count: one a file")
    try:
        found = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError("no-keys", f"{file} is no public key in PEM: remove it, or write it again") from error
    if not isinstance(found, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) or not _is_known(found):
        raise SignatureError("no-keys", f"{file} is no key of {', '.join(KINDS)}: remove it")
    return _public(found, file.name)


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SignatureError("no-keys", f"{file} cannot be read ({error.strerror}): check the path") from error
    if len(content) > _MOST_BYTES:
        raise SignatureError("no-keys", f"{file} is larger than {_MOST_BYTES:,} bytes, so it is no key: remove it")
    return content


def _is_known(key: _Private | _Public) -> bool:
    return not isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey) or key.curve.name in _HASHES


def _private(key: _Private, name: str) -> PrivateKey:
    return PrivateKey(_public(key.public_key(), name), key)


def _public(key: _Public, name: str) -> PublicKey:
    return PublicKey(name, hashlib.sha256(_pem(key)).hexdigest(), key)


def _pem(key: _Public) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _ecdsa(curve: ec.EllipticCurve) -> ec.ECDSA:
    return ec.ECDSA(_HASHES[curve.name]())


def _write(file: Path, content: bytes, mode: int) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(number, "wb") as opened:
        opened.write(content)
