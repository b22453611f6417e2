"""The file `model.sig`: a Sigstore bundle (v0.3) of one DSSE envelope, signed by a key and no certificate. Pure.

    {"mediaType": ..., "verificationMaterial": {"publicKey": {"hint": SHA-256 of the public key's PEM}, ...},
     "dsseEnvelope": {"payload": base64, "payloadType": ..., "signatures": [{"sig": base64, "keyid": ""}]}}

A field that is not known is refused: it may mean something that nobody has checked. The key decides how a signature is
computed, and nothing that stands here does.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, NamedTuple

from workers.packages.signing import documents
from workers.packages.signing.refusal import SignatureError

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MATERIAL, _ENVELOPE = "verificationMaterial", "dsseEnvelope"
_HINT: Final = re.compile(r"[0-9a-f]{64}")
_WHAT: Final = "its signature"


class SignatureBundle(NamedTuple):
    """A signature and what it is of.

    Attributes:
        hint: SHA-256 of the public key that it was made with, as PEM, hexadecimal: which one to try.
        payload: that is signed.
        signature: of `signed_bytes(payload)`.
    """

    hint: str
    payload: bytes
    signature: bytes


def signed_bytes(payload: bytes) -> bytes:
    """Return what is signed for a payload: DSSE's encoding, which includes its type."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def written(bundle: SignatureBundle) -> bytes:
    """Return the file."""
    signature = {"sig": base64.b64encode(bundle.signature).decode(), "keyid": ""}
    envelope = {
        "payload": base64.b64encode(bundle.payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": [signature],
    }  # fmt: skip
    material = {"publicKey": {"hint": bundle.hint}, "tlogEntries": []}
    return documents.written({"mediaType": MEDIA_TYPE, _MATERIAL: material, _ENVELOPE: envelope})


def read(content: bytes) -> SignatureBundle:
    """Read the file; nothing of it is checked against a key yet.

    Raises:
        SignatureError: it is no such bundle.
    """
    found = documents.read(content, _WHAT)
    if found.get("mediaType") != MEDIA_TYPE:
        raise SignatureError("wrong-kind", f"{_WHAT} is no bundle of type {MEDIA_TYPE}: sign the package again")
    known = _fields(found, {"mediaType", _MATERIAL, _ENVELOPE})
    envelope = _fields(known[_ENVELOPE], {"payload", "payloadType", "signatures"})
    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise SignatureError("wrong-kind", f"what is signed is of no type {PAYLOAD_TYPE}: sign the package again")
    if not isinstance(envelope["signatures"], list) or len(envelope["signatures"]) != 1:
        raise SignatureError("several-signatures", "there has to be one signature: sign the package again")
    one = _fields(envelope["signatures"][0], {"sig"}, {"keyid"})
    if one.get("keyid", "") != "":
        raise SignatureError("unreadable", f"{_WHAT} names a `keyid`, which is not known: sign the package again")
    return SignatureBundle(_hint(known[_MATERIAL]), _base64(envelope["payload"]), _base64(one["sig"]))


def _hint(material: Any) -> str:
    """Return which key it was made with."""
    if isinstance(material, dict) and "publicKey" not in material:
        raise SignatureError("wrong-kind", f"{_WHAT} is by a certificate or an account: sign the package with a key")
    known = _fields(material, {"publicKey"}, {"tlogEntries"})
    if known.get("tlogEntries", []) != []:
        raise SignatureError("wrong-kind", f"{_WHAT} has entries of a log, which nobody checks here: sign it again")
    hint = _fields(known["publicKey"], {"hint"})["hint"]
    if not isinstance(hint, str) or not _HINT.fullmatch(hint):
        raise SignatureError("unreadable", f"{_WHAT} does not say which key it was made with: sign the package again")
    return hint


def _fields(found: Any, needed: set[str], optional: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """Return an object that has all these fields and no others."""
    if not isinstance(found, dict) or not needed <= found.keys() <= needed | optional:
        named = sorted(found) if isinstance(found, dict) else type(found).__name__
        told = f"{_WHAT} has to hold {', '.join(sorted(needed))}, not {str(named)[:200]}"
        raise SignatureError("unreadable", f"{told}: sign the package again")
    return found


def _base64(text: Any) -> bytes:
    """Decode a text that has one spelling only."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise SignatureError("unreadable", f"{_WHAT} holds no base64 ({error}): sign the package again") from error
    if base64.b64encode(found).decode() != text:
        raise SignatureError("unreadable", f"{_WHAT} holds bits beside its base64: sign the package again")
    return found
