"""Arrays of packages are bounded before they are inflated: whoever loads one takes no more memory than is allowed."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from workers.errors import PackageError
from workers.runtimes import arrays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "arrays.npz"


BOMB_BYTES = 128 << 20
LITTLE_BYTES = 16 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail where a block takes more than it may."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 2 * LITTLE_BYTES
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound what is inflated by little, so that a small bomb is enough."""
    monkeypatch.setattr(arrays, "MOST_INFLATED", LITTLE_BYTES)


def header(count: int) -> bytes:
    """Return how a file of `count` bytes begins."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (count,)})
    return file.getvalue()


def zipped(method: int, zeros: int, said: int) -> bytes:
    """Return a zip of zeros, as an array that says it had so many."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, archive.open("a.npy", "w", force_zip64=True) as member:
        member.write(header(said))
        for _ in range(zeros >> 20):
            member.write(bytes(1 << 20))
    return file.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_is_refused_before_it_is_inflated(method: int) -> None:
    """Zeros, whatever compresses them, take no memory."""
    content, why = zipped(method, BOMB_BYTES, BOMB_BYTES), r"holds no thing \((it would be 128 MiB|it is compressed by)"
    with little_memory(), pytest.raises(PackageError, match=why):
        arrays.read({NAME: content}, NAME, "thing")


def test_a_bomb_that_says_it_is_small_is_read_as_far_as_it_says() -> None:
    """The directory of a zip is anybody's word."""
    content = bytearray(zipped(zipfile.ZIP_DEFLATED, BOMB_BYTES, 1 << 20))
    whole = zipfile.ZipFile(io.BytesIO(bytes(content))).infolist()[0].file_size
    small, entry = (1 << 20).to_bytes(4, "little"), content.rindex(b"PK\x01\x02")
    assert int.from_bytes(content[entry + 24 : entry + 28], "little") == whole
    content[entry + 24 : entry + 28] = small
    with little_memory(), pytest.raises(PackageError, match="holds no thing"):
        arrays.read({NAME: bytes(content)}, NAME, "thing")


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x93NUMPY\1\0", zipped(zipfile.ZIP_STORED, 1 << 20, 1 << 60)]
)
def test_what_holds_no_arrays_is_refused_in_a_sentence(content: bytes) -> None:
    """Whatever NumPy and zip raise; an array of more memory than there is among it."""
    with pytest.raises(PackageError, match="holds no thing"):
        arrays.read({NAME: content}, NAME, "thing")


def test_another_file_in_it_is_no_array() -> None:
    """NumPy gives it as bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("link", "mean")
    with pytest.raises(PackageError, match="not all of it are arrays"):
        arrays.read({NAME: file.getvalue()}, NAME, "thing")


@pytest.mark.parametrize("most_bytes", [arrays.MOST_INFLATED, 1 << 10])
def test_what_was_written_is_read_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """What may not be inflated is not compressed."""
    monkeypatch.setattr(arrays, "MOST_INFLATED", most_bytes)
    given = {"zeros": np.zeros(100_000), "few": np.arange(3), "link": "mean"}
    arrays.write(tmp_path / NAME, given)
    content = (tmp_path / NAME).read_bytes()
    found = arrays.read({NAME: content}, NAME, "thing")
    assert {name: each.tolist() for name, each in found.items()} == {
        name: np.asarray(each).tolist() for name, each in given.items()
    }
    assert (len(content) < 100_000) == (most_bytes > 1 << 10)
