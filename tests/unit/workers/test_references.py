"""Inputs by their address: what lies below an allowed place is read, and nothing else is."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from schemas.records import Outcome, Tensor
from streams.runtime.clock import SystemClock
from workers.errors import PackageError
from workers.executors.frames import Package
from workers.executors.predictor import predictor
from workers.executors.process import ProcessExecutor
from workers.inputs.references import References
from workers.manifest import Signature
from workers.packages.loading import load_package
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.records import Input
    from streams.operators.contract import Predicted

BYTES = Signature("bytes", by_reference=True)
PAIR = Signature("tensor", "float32", (2,), by_reference=True)
TWO = np.array([1, 2], np.float32)


def npy(array: np.ndarray) -> bytes:
    """Return an array as a file."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def read(place: Path | str, signature: Signature, *inputs: Input, most_bytes: int = 1 << 20) -> list[Input | str]:
    """Return the rows that are read below a place, or why they are not."""
    known = References((place if isinstance(place, str) else f"file:{place}/",), most_bytes)
    rows, refused = known.read(signature, inputs)
    return [refused.get(at, row) for at, row in enumerate(rows)]


@pytest.fixture
def objects() -> Iterator[str]:
    """Return a place in a store of objects that is no file system."""
    store = fsspec.filesystem("memory")
    yield "memory:bucket/"
    store.rm("/bucket", recursive=True)


@pytest.mark.parametrize("slashes", ["", "//"])
def test_a_file_below_an_allowed_folder_is_the_row(tmp_path: Path, slashes: str) -> None:
    """Rows that came themselves stay as they are."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/1.jpg").write_bytes(b"image")
    assert read(tmp_path, BYTES, b"itself", f"file:{slashes}{tmp_path}/deep/1.jpg") == [b"itself", b"image"]


def test_nothing_is_read_unless_a_place_is_allowed(tmp_path: Path) -> None:
    """The cause names the setting."""
    (tmp_path / "1").write_bytes(b"image")
    _, refused = References().read(BYTES, [f"file:{tmp_path}/1"])
    assert "worker.references" in refused[0]


def test_what_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    """Whatever the address looks like, and wherever links lead; the words do not tell whether it is there."""
    inside, outside = tmp_path / "images", tmp_path / "images-2"
    for folder in (inside, outside):
        folder.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    addresses = [
        f"file:{outside}/secret",
        f"file:{inside}/../images-2/secret",
        f"file:{inside}/./../images-2/secret",
        f"file:{inside}//../images-2/secret",
        f"file:{inside}/link",
        f"file:{inside}/folder/secret",
        f"file:{inside}/folder/nothing",
        f"simplecache::file:{inside}/link",
        f"memory:{inside}/link",
        f"{outside}/secret",
        "",
        f"file:{inside}/",
        f"file:{inside}/a\0b",
    ]
    found = read(inside, BYTES, *addresses)
    assert all(isinstance(row, str) and "cannot read" in row for row in found), found
    assert str(found[5]).partition(": ")[2].partition(": ")[2] == str(found[6]).partition(": ")[2].partition(": ")[2]


def test_links_within_the_place_are_followed(tmp_path: Path) -> None:
    """Data sets are often made of them; and the place itself may be one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/1").write_bytes(b"image")
    (tmp_path / "real/2").symlink_to("1")
    (tmp_path / "place").symlink_to("real")
    assert read(tmp_path / "place", BYTES, f"file:{tmp_path}/place/2") == [b"image"]


def test_what_is_no_file_or_too_large_or_missing_is_refused_alone(tmp_path: Path) -> None:
    """A pipe that nobody writes to does not hang the worker."""
    (tmp_path / "good").write_bytes(b"12345678")
    (tmp_path / "large").write_bytes(b"123456789")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    names = ("good", "large", "folder", "pipe", "missing")
    good, large, *others = read(tmp_path, BYTES, *(f"file:{tmp_path}/{name}" for name in names), most_bytes=8)
    assert good == b"12345678"
    assert "larger than 8 bytes" in str(large)
    for row, why in zip(others, ("it is no file", "it is no file", "No such file"), strict=True):
        assert why in str(row)


def test_numbers_are_bare_or_a_file_of_numpy(tmp_path: Path) -> None:
    """Both have the form that the model takes in the end."""
    (tmp_path / "bare").write_bytes(TWO.tobytes())
    (tmp_path / "npy").write_bytes(npy(TWO.astype(np.float64)))
    bare, whole = read(tmp_path, PAIR, f"file:{tmp_path}/bare", f"file:{tmp_path}/npy")
    assert (bare, whole) == (Tensor.of(TWO), Tensor.of(TWO.astype(np.float64)))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has 0 bytes, and float32[2] or its address has 8"),
        (npy(TWO)[:-1], "cut off"),
        (npy(np.array([None, 1])), "|O"),
        (npy(TWO).replace(b"(2,)", b"(9,)"), "cut off"),
        (b"\x93NUMPY\x01\x00\xff\xff", "no .npy file"),
        (b"\x93NUMPY\x09\x00", "no .npy file"),
        (npy(TWO.astype(">f4")), ">f4"),
        (npy(np.asfortranarray(np.ones((2, 2), np.float32))), "by column"),
    ],
)
def test_a_file_without_the_numbers_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    """A header is not believed, and nothing is unpickled."""
    (tmp_path / "1").write_bytes(content)
    (found,) = read(tmp_path, PAIR, f"file:{tmp_path}/1")
    assert isinstance(found, str), found
    assert why in found


def test_objects_of_other_places_are_read_by_the_same_rules(objects: str) -> None:
    """Any file system of fsspec's: s3 is another name for it."""
    store = fsspec.filesystem("memory")
    store.pipe({"/bucket/1": b"12345678", "/bucket/large": b"123456789", "/other/1": b"secret"})
    names = ("1", "large", "missing", "../other/1", "")
    found = read(objects, BYTES, *(f"{objects}{name}" for name in names), "memory:other/1", most_bytes=8)
    assert found[0] == b"12345678"
    for row, why in zip(found[1:], ("larger than 8 bytes", "there is nothing", "..", "empty", "outside"), strict=True):
        assert why in str(row)


def test_a_store_that_reads_an_address_otherwise_is_not_asked(objects: str) -> None:
    """What will be fetched is compared, whichever way a file system changes a name before."""

    class Lenient(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no annotations
        protocol = "lenient"
        asked: ClassVar[list[str]] = []

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("lenient://", "memory://"))).replace("~up", "/../other")

        def cat_ranges(self, paths: list[str], *_rest: object, **_more: object) -> list[bytes]:
            self.asked.extend(paths)
            return [b"secret"] * len(paths)

    fsspec.filesystem("memory").pipe({"/bucket/1": b"1"})
    fsspec.register_implementation("lenient", Lenient, clobber=True)
    (found,) = read(objects.replace("memory", "lenient"), BYTES, "lenient:bucket/a~up")
    assert "outside of the place" in str(found)
    assert read(objects.replace("memory", "lenient"), BYTES, "lenient:bucket/a") == [b"secret"]
    assert Lenient.asked == ["/bucket/a"]


@pytest.mark.parametrize(
    "sign", ["%2e%2e/1", "a%2f..%2f1", "\t../1", "\n../1", "a?b", "a#1", "..\\1", "a;b", "x::y", "\x85"]
)
def test_no_object_has_a_name_that_a_store_might_read_otherwise(objects: str, sign: str) -> None:
    """The words of an address's characters come before any store is asked."""
    fsspec.filesystem("memory").pipe({"/bucket/1": b"1"})
    (found,) = read(objects, BYTES, objects + sign)
    assert "cannot read" in str(found)


class _Server(BaseHTTPRequestHandler):
    """Answers below /images/ with what it is told to, elsewhere with a secret; notes what it was asked."""

    asked: ClassVar[list[tuple[str, str | None]]] = []
    sent: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append((self.path, self.headers["Accept-Encoding"]))
        name = self.path.removeprefix("/images/")
        content = b"SECRET" if name == self.path else b"image"
        if name == "go":
            self.send_response(302)
            self.send_header("Location", "/secret")
            content = b""
        else:
            self.send_response({"gone": 404, "broken": 500, "part": 206}.get(name, 200))
        if name in {"endless", "vast"}:
            self._pour(name)
            return
        if name == "squeezed":
            self.send_header("Content-Encoding", "gzip")
            content = gzip.compress(bytes(64 << 20))
        self.send_header("Content-Length", str(len(content) + 10 * (name == "cut")))
        self.end_headers()
        self.wfile.write(content)

    def _pour(self, name: str) -> None:
        if name == "vast":
            self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        with suppress(ConnectionError):
            for _ in range(4_000):
                self.sent.append(self.wfile.write(bytes(1 << 16)))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    """Return a place of a web server."""
    _Server.asked.clear()
    _Server.sent.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/images/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_web_server_is_asked_for_what_was_compared(web: str) -> None:
    """Without any compression; letters that no URL has are written as their bytes."""
    assert read(web, BYTES, web + "a/b 1.jpg", web + "übung~,=1", b"itself") == [b"image", b"image", b"itself"]
    assert sorted(_Server.asked) == [("/images/%C3%BCbung~,=1", "identity"), ("/images/a/b%201.jpg", "identity")]


def leaving(web: str) -> list[str]:
    """Return addresses that lead out of a place, for somebody who reads them in some way."""
    server, port = web.removesuffix("/images/"), web.split(":")[2].partition("/")[0]
    ways = [
        "../secret",
        "%2e%2e/secret",
        "%2E./secret",
        ".%2e/secret",
        "%252e%252e/secret",
        "..%2fsecret",
        "..%5csecret",
    ]
    ways += [
        "\t../secret",
        ".\t./secret",
        "\n../secret",
        "\r\n../secret",
        "a/../../secret",
        "./../secret",
        "..\\secret",
    ]
    ways += ["..;/secret", "?/../../secret", "#/../../secret", "/../secret", "%00/../secret", "a/%2e%2e/%2e%2e/secret"]
    ways += [" HTTP/1.1\r\nHost: x\r\n\r\nGET /secret", "..\u2028/secret", "\x00../secret", "\x85../secret"]
    others = [f"{server}/secret", f"{server}/imagesx/secret", f"{server}/IMAGES/../secret", f"http:{server[7:]}/secret"]
    others += [f"http://x@127.0.0.1:{port}/secret", f"http://127.0.0.1:{port}@localhost:{port}/images/x"]
    others += [f"HTTP://127.0.0.1:{port}/secret", f"http://localhost:{port}/images/x", f"http://127.1:{port}/images/x"]
    others += [
        f"http://[::ffff:127.0.0.1]:{port}/images/x",
        f"http://2130706433:{port}/images/x",
        "http://127.0.0.1/images/x",
    ]
    others += [
        f"http://127.0.0.1:{port}\\@x/images/",
        f"https://127.0.0.1:{port}/images/x",
        f"http:///127.0.0.1:{port}/images/x",
    ]
    return [web + way for way in ways] + others


def test_no_address_leaves_its_place(web: str) -> None:
    """However it is written: the server hears of none of them."""
    found = read(web, BYTES, *leaving(web))
    assert all("cannot read" in str(row) for row in found), found
    assert _Server.asked == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("go", "answers 302"),
        ("gone", "there is nothing"),
        ("broken", "answers 500"),
        ("part", "answers 206"),
        ("cut", "cut off"),
        ("squeezed", "compressed"),
        ("vast", "larger than"),
        ("endless", "larger than"),
    ],
)
def test_what_a_web_server_does_otherwise_is_said(web: str, name: str, why: str) -> None:
    """No redirect, no inflation, and no more than a row may be."""
    (found,) = read(web, BYTES, web + name)
    assert why in str(found)
    assert all(path == f"/images/{name}" for path, _ in _Server.asked)
    assert sum(_Server.sent) < 64 << 20


@pytest.mark.parametrize("place", ["http:///images/", "http://user:word@host/", "https://host:port/", "http:host/%2e/"])
def test_a_place_of_the_web_names_its_server_and_nobody(place: str) -> None:
    """So the host is the settings' own in each address."""
    with pytest.raises(PackageError, match="no place"):
        References((place,))


def test_a_file_system_that_is_not_installed_is_said_to_the_rows_owner() -> None:
    """The batch's other rows are answered."""
    found = read("nowhere:bucket/", BYTES, b"itself", "nowhere:bucket/1")
    assert found[0] == b"itself"
    assert "nowhere" in str(found[1])


@pytest.mark.parametrize("place", ["file:/data", "file:data/", "local:/data/", "/data/", "s3:bucket", ""])
def test_a_place_is_an_address_that_ends_with_a_slash(place: str) -> None:
    """Else `file:/data` would allow /database, too."""
    with pytest.raises(PackageError, match="ends with `/`"):
        References((place,))


def test_so_many_are_read_at_a_time_that_they_fit() -> None:
    """A tensor's size is known; of bytes each may be as large as is allowed."""
    known = References(("file:/x/",), most_bytes=1000, at_once_bytes=10_000)
    assert known.step(BYTES) == 10
    assert References(at_once_bytes=10_000).step(PAIR) == 10_000 // (16 + 4096)
    assert References(at_once_bytes=1).step(BYTES) == 1


def predicted(folder: Path, *inputs: Input, at_once_bytes: int = 1 << 20) -> Predicted:
    """Ask a model that takes addresses of pairs."""
    package_function("tests.toys:parity", folder / "pack", "m", "1", np.zeros((2, 2), np.float32), by_reference=True)
    known = References((f"file:{folder}/",), at_once_bytes=at_once_bytes)
    return predictor(load_package(folder / "pack"), (), known)(inputs)


@pytest.mark.parametrize("at_once_bytes", [1, 1 << 20])
def test_a_row_that_cannot_be_read_is_invalid_and_its_neighbours_are_answered(
    tmp_path: Path, at_once_bytes: int
) -> None:
    """Its owner is told which address and why; the package remembers that it takes addresses."""
    (tmp_path / "1").write_bytes(TWO.tobytes())
    rows = (Tensor.of(TWO - 1), f"file:{tmp_path}/1", f"file:{tmp_path}/missing")
    found = predicted(tmp_path, *rows, at_once_bytes=at_once_bytes)
    assert found.outcomes == (Outcome.OK, Outcome.OK, Outcome.INVALID)
    assert list(found.answers)[:2] == [1, 1]
    assert found.reasons == {2: "reference"}
    assert "missing: No such file" in found.messages[2]


async def test_a_model_in_a_process_of_its_own_reads_there(tmp_path: Path) -> None:
    """It is told which places are allowed."""
    (tmp_path / "1").write_bytes(TWO.tobytes())
    package_function("tests.toys:parity", tmp_path / "p", "m", "1", np.zeros((2, 2), np.float32), by_reference=True)
    clock = SystemClock()
    child = ProcessExecutor(Package(str(tmp_path / "p"), references=References((f"file:{tmp_path}/",))), clock.now_us)
    try:
        await child.start()
        timed = await child.run([f"file:{tmp_path}/1", "file:/etc/passwd"], 30)
    finally:
        await child.stop()
    assert timed.predicted.outcomes == (Outcome.OK, Outcome.INVALID)
    assert "outside" in timed.predicted.messages[1]


def test_texts_and_tables_are_no_addresses() -> None:
    """A text is a text there."""
    with pytest.raises(PackageError, match="package bytes"):
        Signature("string", by_reference=True)


def test_a_package_without_addresses_has_the_manifest_of_before(tmp_path: Path) -> None:
    """So its digest is the same under every release."""
    package_function("tests.toys:parity", tmp_path / "p", "m", "1", np.zeros((2, 2), np.float32))
    assert "by_reference" not in (tmp_path / "p/manifest.json").read_text()
