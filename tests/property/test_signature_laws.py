"""Laws of signatures: what is signed is what is loaded, and everything else is refused by a reason that has a name."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signed_packages import FILES, key_in, packaged, trusted
from workers import manifest as manifests
from workers.errors import PackageError
from workers.packages.signing import bundle, documents, statement
from workers.packages.signing.bundle import PAYLOAD_TYPE, SignatureBundle
from workers.packages.signing.keys import KINDS, generated
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.signed import sign
from workers.packages.signing.statement import SIGNATURE_FILE, SignedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.packages.signing.keys import PrivateKey

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.text("abcdefgh", min_size=1, max_size=6).map(lambda name: f"{name}.bin")
MADE: Path = Path(tempfile.mkdtemp(prefix="skysail-signed-"))


@pytest.fixture(scope="module", autouse=True)
def made() -> Iterator[PrivateKey]:
    """Make a signed package and its key once; the laws work on copies."""
    key = key_in(MADE / "keys")
    sign(packaged(MADE / "package"), key)
    yield key
    shutil.rmtree(MADE)


@contextmanager
def copied() -> Iterator[Path]:
    """Lend a copy of the signed package."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(shutil.copytree(MADE / "package", Path(place) / "package"))


def refused(folder: Path, version: str = "") -> str:
    """Return the reason by which a package is refused; fails if it is not."""
    with pytest.raises(SignatureError) as found:
        trusted(folder, MADE / "keys", version)
    assert f"({found.value.reason})" in str(found.value)
    return found.value.reason


def parts() -> dict[str, Any]:
    """Return the bundle of the signed package."""
    found: dict[str, Any] = json.loads((MADE / "package" / SIGNATURE_FILE).read_text())
    return found


def with_bundle(document: object) -> str:
    """Return the reason by which the package is refused with another bundle."""
    with copied() as folder:
        (folder / SIGNATURE_FILE).write_text(json.dumps(document))
        return refused(folder)


def with_payload(payload: bytes, key: PrivateKey) -> str:
    """Return the reason by which the package is refused when our own key has signed something else."""
    with copied() as folder:
        signed = SignatureBundle(key.public.hint, payload, key.sign(bundle.signed_bytes(payload)))
        (folder / SIGNATURE_FILE).write_bytes(bundle.written(signed))
        return refused(folder)


@given(st.sampled_from(KINDS), st.dictionaries(NAMES, st.binary(max_size=40), max_size=5), st.integers(0, 2))
def test_what_was_signed_is_what_is_loaded(kind: str, files: dict[str, bytes], others: int) -> None:
    """By keys of every kind, whatever the package holds and however many other keys are trusted."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folder, key = packaged(root / "package", files), key_in(root / "keys", "mine", kind)
        for number in range(others):
            key_in(root / "keys", f"{'az'[number]}-other", KINDS[number])
        sign(folder, key)
        assert trusted(folder, root / "keys", "digits@1") == files


@given(st.text(max_size=9), st.dictionaries(st.text(max_size=9), DIGESTS, max_size=6), st.binary(max_size=64), DIGESTS)
def test_statements_and_bundles_are_read_as_they_were_written(
    name: str, files: dict[str, str], signature: bytes, hint: str
) -> None:
    """Whatever they hold."""
    payload = statement.written(SignedFiles(name, files))
    assert statement.read(payload) == (name, files)
    assert bundle.read(bundle.written(SignatureBundle(hint, payload, signature))) == (hint, payload, signature)


@given(st.data())
def test_a_changed_byte_of_any_file_is_refused(data: st.DataObject) -> None:
    """Of the model, of the manifest, of the signature."""
    with copied() as folder:
        names = sorted(path.name for path in folder.iterdir() if path.stat().st_size)
        path = folder / data.draw(st.sampled_from(names))
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with pytest.raises(PackageError) as found:
            trusted(folder, MADE / "keys")
        assert path.name != SIGNATURE_FILE or isinstance(found.value, SignatureError)


@given(st.data())
def test_a_file_that_is_cut_or_grows_is_refused(data: st.DataObject) -> None:
    """At any place."""
    with copied() as folder:
        path = folder / data.draw(st.sampled_from([*FILES, manifests.MANIFEST, SIGNATURE_FILE]))
        content = path.read_bytes()
        kept = data.draw(st.integers(0, max(0, len(content) - 1)))
        path.write_bytes(content[:kept] if kept < len(content) else content + b"x")
        with pytest.raises(PackageError):
            trusted(folder, MADE / "keys")


@given(st.sampled_from([*FILES]), st.sampled_from(["added.bin", ".hidden", "inner/added.bin", "added.py"]))
def test_a_file_that_comes_goes_or_has_another_name_is_refused(name: str, other: str) -> None:
    """Also if nothing would read it."""
    with copied() as folder:
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_bytes(b"anything")
        assert refused(folder) == "other-files"
        (folder / name).replace(folder / other)
        assert refused(folder) == "other-files"
    with copied() as folder:
        (folder / name).unlink()
        with pytest.raises(PackageError, match="is missing"):
            trusted(folder, MADE / "keys")


@given(st.permutations([*FILES]))
def test_files_that_change_places_are_refused(names: list[str]) -> None:
    """Each is what it was, under another name."""
    with copied() as folder:
        for name, content in zip(names, FILES.values(), strict=True):
            (folder / name).write_bytes(content)
        if names == [*FILES]:
            assert trusted(folder, MADE / "keys") == FILES
            return
        with pytest.raises(PackageError, match="SHA-256 differs"):
            trusted(folder, MADE / "keys")


@given(st.sampled_from([*FILES, manifests.MANIFEST, SIGNATURE_FILE]))
def test_a_link_in_the_place_of_a_file_is_refused(name: str) -> None:
    """Although what it leads to is the same file."""
    with copied() as folder:
        moved = (folder / name).replace(folder.parent / "elsewhere")
        (folder / name).symlink_to(moved)
        assert refused(folder) == ("unreadable" if name == SIGNATURE_FILE else "other-files")


def test_a_folder_that_is_a_link_is_refused() -> None:
    """What it holds is no part of the package."""
    with copied() as folder:
        (folder.parent / "outside").mkdir()
        (folder / "inner").symlink_to(folder.parent / "outside")
        assert refused(folder) == "other-files"


@given(st.data())
def test_a_manifest_and_files_that_fit_each_other_are_refused_if_they_are_others(data: st.DataObject) -> None:
    """The signature of another package does not do, also if only the version differs."""
    with tempfile.TemporaryDirectory() as place:
        files = data.draw(st.dictionaries(NAMES, st.binary(max_size=9), max_size=3))
        folder = packaged(Path(place) / "package", files, version="2")
        shutil.copy(MADE / "package" / SIGNATURE_FILE, folder)
        assert refused(folder) == "other-files"


def test_another_version_than_the_deployed_one_is_refused() -> None:
    """However well it is signed."""
    with copied() as folder:
        assert refused(folder, "digits@2") == "other-version"
        assert refused(folder, "fraud@1") == "other-version"


@given(st.binary(max_size=300))
def test_bytes_that_are_no_signature_are_refused(content: bytes) -> None:
    """Whatever they are."""
    with copied() as folder:
        (folder / SIGNATURE_FILE).write_bytes(content)
        assert refused(folder) == "unreadable"


@given(JSON, st.data())
def test_a_bundle_with_anything_in_the_place_of_a_part_is_refused(value: object, data: st.DataObject) -> None:
    """Each part is needed as it is."""
    assert with_bundle(value) in {"unreadable", "wrong-kind"}
    found = parts()
    places = [(found, name) for name in found]
    for name in ("verificationMaterial", "dsseEnvelope"):
        places += [(found[name], inner) for inner in found[name]]
    places += [(found["verificationMaterial"]["publicKey"], "hint")]
    places += [(found["dsseEnvelope"]["signatures"][0], name) for name in ("sig", "keyid")]
    at, name = data.draw(st.sampled_from(places))
    if at[name] != value:
        at[name] = value
        assert with_bundle(found)


@given(JSON, st.data())
def test_our_own_key_does_not_make_anything_a_statement(value: object, data: st.DataObject) -> None:
    """It may have signed other things than models."""
    found = json.loads(statement.written(SignedFiles("digits@1", {"a.bin": "0" * 64})))
    places = [(found, name) for name in found] + [(found["subject"][0], name) for name in ("name", "digest")]
    places += [(found["predicate"], name) for name in found["predicate"]]
    places += [(found["predicate"]["resources"][0], name) for name in ("name", "algorithm", "digest")]
    at, name = data.draw(st.sampled_from(places))
    if name == "name" and isinstance(value, str):
        return
    at[name] = value
    for content in (found, value):
        with pytest.raises(SignatureError) as refusal:
            statement.read(json.dumps(content).encode())
        assert refusal.value.reason in {"unreadable", "wrong-kind"}


def test_another_type_of_payload_is_refused_although_our_key_has_signed_it(made: PrivateKey) -> None:
    """Neither by its own name nor under that of a statement."""
    found, kind = parts(), "text/plain"
    payload = base64.b64decode(found["dsseEnvelope"]["payload"])
    told = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    found["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(made.sign(told)).decode()
    assert with_bundle(found) == "bad-signature"
    found["dsseEnvelope"]["payloadType"] = kind
    assert with_bundle(found) == "wrong-kind"
    found = json.loads(payload)
    for name in ("_type", "predicateType"):
        other = json.dumps({**found, name: "https://model_signing/Digests/v0.1"}).encode()
        assert with_payload(other, made) == "wrong-kind"


def test_two_signatures_are_refused() -> None:
    """Also if both are right: nobody has said what the second one means. So is none."""
    found = parts()
    one = found["dsseEnvelope"]["signatures"]
    for signatures in (one * 2, []):
        found["dsseEnvelope"]["signatures"] = signatures
        assert with_bundle(found) == "several-signatures"


def test_a_name_that_comes_twice_is_refused() -> None:
    """Two readers might take another one each."""
    text = (MADE / "package" / SIGNATURE_FILE).read_text()
    with copied() as folder:
        (folder / SIGNATURE_FILE).write_text(text.replace('{"mediaType"', '{"mediaType":"x","mediaType"', 1))
        assert refused(folder) == "unreadable"


def test_documents_that_are_huge_or_deep_are_refused(made: PrivateKey) -> None:
    """The first before they are parsed, and without much memory; also inside of what our own key has signed."""
    with copied() as folder:
        (folder / SIGNATURE_FILE).write_bytes(b'{"a":"' + b"x" * documents.MOST_BYTES + b'"}')
        assert refused(folder) == "too-large"
        (folder / SIGNATURE_FILE).write_bytes(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
        assert refused(folder) == "unreadable"
        (folder / SIGNATURE_FILE).write_bytes(b'{"a":' + b"9" * 100_000 + b"}")
        assert refused(folder) == "unreadable"
    assert with_payload(b"[" * 200_000, made) == "unreadable"
    with pytest.raises(SignatureError, match="too-large"):
        statement.read(b" " * (documents.MOST_BYTES + 1))


@given(st.sampled_from(KINDS), st.booleans())
def test_a_key_that_is_not_trusted_signs_nothing(kind: str, claims: bool) -> None:
    """Not even if it names a trusted one as its own."""
    foreign = generated(kind, "foreign")
    with copied() as folder:
        sign(folder, foreign)
        assert refused(folder) == "foreign-key"
        if claims:
            found = bundle.read((folder / SIGNATURE_FILE).read_bytes())
            own = parts()["verificationMaterial"]["publicKey"]["hint"]
            (folder / SIGNATURE_FILE).write_bytes(bundle.written(found._replace(hint=own)))
            assert refused(folder) == "bad-signature"


@given(st.randoms(use_true_random=False))
def test_the_order_of_names_in_a_bundle_means_nothing(draw: Any) -> None:
    """Another tool may write them otherwise."""

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return [*map(shuffled, value)] if isinstance(value, list) else value
        names = draw.sample([*value], len(value))
        return {name: shuffled(value[name]) for name in names}

    with copied() as folder:
        (folder / SIGNATURE_FILE).write_text(json.dumps(shuffled(parts()), indent=draw.choice([None, 2])))
        assert trusted(folder, MADE / "keys") == FILES
    payload = json.loads(base64.b64decode(parts()["dsseEnvelope"]["payload"]))
    assert statement.read(json.dumps(shuffled(payload)).encode()).files


def test_a_package_without_a_signature_is_refused() -> None:
    """The message has the command that signs it."""
    with copied() as folder:
        (folder / SIGNATURE_FILE).unlink()
        assert refused(folder) == "unsigned"
        with pytest.raises(SignatureError, match=f"skysail model sign {folder} --key KEY"):
            trusted(folder, MADE / "keys")


def test_the_payload_type_is_what_openssf_says() -> None:
    """Else no other tool reads it."""
    assert parts()["dsseEnvelope"]["payloadType"] == PAYLOAD_TYPE == "application/vnd.in-toto+json"


def test_what_is_signed_is_encoded_as_dsse_says() -> None:
    """With the type and both lengths, so that no other signature of the key means a model."""
    assert bundle.signed_bytes(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


def test_our_key_has_to_have_signed_each_file_and_no_others(made: PrivateKey) -> None:
    """Although the digest of the manifest alone would do: whoever signs says which files there are."""
    found = manifests.pinned(MADE / "package")
    files = {**found.manifest.files, manifests.MANIFEST: found.digest}
    fewer = {name: digest for name, digest in files.items() if name != "a.bin"}
    for other in (fewer, {**files, "more.bin": "0" * 64}, {**files, "a.bin": "0" * 64}):
        assert with_payload(statement.written(SignedFiles("digits@1", other)), made) == "other-files"


def test_a_field_that_nobody_knows_is_refused() -> None:
    """It may mean something that nobody has checked, such as a certificate."""
    for place in ((), ("verificationMaterial",), ("verificationMaterial", "publicKey"), ("dsseEnvelope",)):
        found = at = parts()
        for name in place:
            at = at[name]
        at["x509CertificateChain"] = {}
        assert with_bundle(found) == "unreadable"
    found = parts()
    found["dsseEnvelope"]["signatures"][0]["cert"] = ""
    assert with_bundle(found) == "unreadable"


def test_base64_has_one_spelling() -> None:
    """The last character of 64 bytes has four bits that mean nothing: they are nought."""
    found = parts()
    signature = found["dsseEnvelope"]["signatures"][0]
    last = signature["sig"][85]
    other = chr(ord(last) + 1)
    signature["sig"] = f"{signature['sig'][:85]}{other}=="
    assert base64.b64decode(signature["sig"]) == base64.b64decode(parts()["dsseEnvelope"]["signatures"][0]["sig"])
    assert with_bundle(found) == "unreadable"


def test_a_statement_that_says_nothing_about_whole_files_is_refused(made: PrivateKey) -> None:
    """Nor one that names a file twice."""
    payload = json.loads(base64.b64decode(parts()["dsseEnvelope"]["payload"]))
    payload["predicate"]["serialization"]["method"] = "shards"
    assert with_payload(json.dumps(payload).encode(), made) == "wrong-kind"
    digests = ["0" * 64, "1" * 64]
    twice = json.loads(statement.written(SignedFiles("digits@1", dict(zip("ab", digests, strict=True)))))
    twice["predicate"]["resources"][0]["name"] = "b"
    twice["subject"][0]["digest"]["sha256"] = hashlib.sha256(bytes.fromhex("1" * 64)).hexdigest()
    assert with_payload(json.dumps(twice).encode(), made) == "unreadable"
