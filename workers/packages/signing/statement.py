"""What is signed of a package: the SHA-256 of every file, as an in-toto statement. Pure.

    {"_type": ".../Statement/v1", "predicateType": ".../signature/v1.0",
     "subject":   [{"name": the package's, "digest": {"sha256": of all digests below, in their order}}],
     "predicate": {"serialization": {"method": "files", ...}, "resources": [{"name", "algorithm", "digest"}, ...]}}

Libraries that sign models as OpenSSF does write and read the same. Its other ways to cut a model, such as shards, say
nothing about whole files, so they are refused.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workers.packages.signing import documents
from workers.packages.signing.refusal import SignatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNATURE_FILE: Final = "model.sig"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://model_signing/signature/v1.0"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class SignedFiles(NamedTuple):
    """What a signature says.

    Attributes:
        name: of what was signed, for people.
        files: SHA-256 by name.
    """

    name: str
    files: Mapping[str, str]


def written(signed: SignedFiles) -> bytes:
    """Return the statement as bytes to be signed."""
    files = dict(sorted(signed.files.items()))
    serialization = {
        "method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": [SIGNATURE_FILE],
    }  # fmt: skip
    resources = [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in files.items()]
    return documents.written({
        "_type": STATEMENT,
        "subject": [{"name": signed.name, "digest": {"sha256": _root([*files.values()])}}],
        "predicateType": PREDICATE,
        "predicate": {"serialization": serialization, "resources": resources},
    })  # fmt: skip


def read(payload: bytes) -> SignedFiles:
    """Read a statement whose signature has been checked.

    Raises:
        SignatureError: it is of another kind, or does not say what it must.
    """
    found = documents.read(payload, "what is signed")
    if found.get("_type") != STATEMENT or found.get("predicateType") != PREDICATE:
        raise SignatureError("wrong-kind", f"what is signed is no model ({PREDICATE}): sign the package again")
    try:
        (subject,) = found["subject"]
        name, root = subject["name"], subject["digest"]["sha256"]
        _require_files(found["predicate"]["serialization"])
        files = _files(found["predicate"]["resources"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SignatureError(
            "unreadable", f"what is signed names no files ({error}): sign the package again"
        ) from error
    if not isinstance(name, str) or root != _root([*files.values()]):
        raise SignatureError("unreadable", "the digest of what is signed is not that of its files: sign it again")
    return SignedFiles(name, files)


def _require_files(serialization: Any) -> None:
    """Refuse a model that was cut into something else than files."""
    method = serialization["method"], serialization["hash_type"]
    if method != ("files", "sha256"):
        raise SignatureError("wrong-kind", "it is not signed file by file, by SHA-256: sign the package again")


def _files(resources: Any) -> dict[str, str]:
    """Return the digests by name.

    Raises:
        ValueError: a name comes twice, or what stands there is no digest.
    """
    found: dict[str, str] = {}
    for resource in resources:
        name, digest = resource["name"], resource["digest"]
        if resource["algorithm"] != "sha256" or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ValueError(f"{name!r:.80} has no SHA-256")
        if not isinstance(name, str) or name in found:
            raise ValueError(f"{name!r:.80} stands there twice")
        found[name] = digest
    return found


def _root(digests: list[str]) -> str:
    return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()
