"""Reads inputs that lie elsewhere: a text that a package takes for an address becomes the bytes that lie there.

    "file:/data/images/1.jpg" ─▶ below an allowed place? ─▶ read, up to a bound ─▶ bytes, or a tensor of them
                                 └▶ no, or it cannot be read ─▶ refused: a message to the row's owner

Files and web servers need nothing else; all other places are fsspec's (`s3:`, `gs:`, ...). Nothing is read unless
`worker.references` names a place. Reading happens where the model runs, never on the event loop.

An address is compared as it will be used: what a store or a server might read otherwise (`%2e`, a tab, `?`) is refused.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.lib import format as npy

from policies.foreign import pass_on_interrupt, told
from schemas.records import DTYPES, Tensor
from workers.errors import PackageError
from workers.extras import install
from workers.inputs import web

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Input
    from workers.manifest import Signature

FILE: Final = "file"
# Stores and servers read these in ways of their own: as dots and slashes, as nothing, or as another version's name.
_DOUBTFUL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\%?#;\u2028\u2029]")
_NPY: Final = b"\x93NUMPY"
_NPY_HEADER_BYTES: Final = 4096  # more than the header of any array that fits a signature
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in the place of a file hangs nobody


class UnreadableError(ValueError):
    """What an address names is not read; the message says why, to whoever sent it."""


@dataclass(frozen=True, slots=True)
class References:
    """Places that may be read.

    Attributes:
        places: addresses that end with `/`; what lies below one may be read.
        most_bytes: of one input.
        at_once_bytes: of the inputs that are held together.
    """

    places: tuple[str, ...] = ()
    most_bytes: int = 16 << 20
    at_once_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for place in self.places:
            scheme, path = _parts(place)
            is_rooted = path.startswith("/") == (scheme == FILE)
            if scheme in {"", "local"} or not path.endswith("/") or not is_rooted or _is_doubtful(scheme, place):
                raise PackageError(f"{place!r} is no place: write an address that ends with `/`, as file:/data/images/")
            if scheme in web.SCHEMES:
                web.check_place(place)

    def step(self, signature: Signature) -> int:
        """Return how many inputs of a signature may be read at a time, whatever their size."""
        return max(1, self.at_once_bytes // self._most(signature))

    def read(self, signature: Signature, inputs: Sequence[Input]) -> tuple[list[Input], Mapping[int, str]]:
        """Put what lies there in the place of each address; returns the rows, and why some could not be read."""
        rows, refused = list(inputs), dict[int, str]()
        addresses = {row: address for row, address in enumerate(inputs) if isinstance(address, str)}
        for row, content in self._contents(addresses, self._most(signature)).items():
            try:
                if isinstance(content, Exception):
                    raise content
                rows[row] = _as_input(signature, content)
            except UnreadableError as error:
                refused[row] = f"cannot read {addresses[row]:.200}: {error}"
        return rows, refused

    def _most(self, signature: Signature) -> int:
        if signature.kind != "tensor":
            return self.most_bytes
        # Numbers of another type that are equal are taken, too: at most 8 bytes each.
        return min(self.most_bytes, 8 * math.prod(signature.shape) + _NPY_HEADER_BYTES)

    def _contents(self, addresses: Mapping[int, str], most_bytes: int) -> dict[int, bytes | Exception]:
        """Read files one by one, and what is elsewhere together: each of those takes a trip over the network."""
        found: dict[int, bytes | Exception] = {}
        elsewhere: dict[tuple[str, str], dict[int, str]] = {}
        for row, address in addresses.items():
            try:
                scheme, root, path = self._allowed(address)
                if scheme == FILE:
                    found[row] = _file(root, path, most_bytes)
                else:
                    elsewhere.setdefault((scheme, root), {})[row] = path
            except UnreadableError as error:
                found[row] = error
        for (scheme, root), alike in elsewhere.items():
            # With `://`: fsspec takes anything else for a local file.
            names = [f"{scheme}://{path}" for path in alike.values()]
            if scheme in web.SCHEMES:
                contents = [_told_by(content) for content in web.read(names, most_bytes)]
            else:
                contents = _objects(f"{scheme}://{root}", names, most_bytes)
            found |= zip(alike, contents, strict=True)
        return found

    def _allowed(self, address: str) -> tuple[str, str, str]:
        """Return scheme, root and path of an address; the root is of the place that it lies below."""
        if not self.places:
            raise UnreadableError("this worker reads no addresses; its setting `worker.references` may name places")
        scheme, path = _parts(address)
        if not scheme:
            raise UnreadableError("that is no address, such as file:/data/images/1.jpg")
        for place in self.places:
            known, root = _parts(place)
            if known == scheme and path.startswith(root):
                segments = path[len(root) :].split("/")
                if not {"", ".", ".."}.isdisjoint(segments):
                    raise UnreadableError("an address has no empty, `.` or `..` segments")
                if _is_doubtful(scheme, path[len(root) :]):
                    raise UnreadableError("an address has no control characters, and none of \\ % ? # ; or `::`")
                return scheme, root, path
        raise UnreadableError("it lies outside of the places that `worker.references` names")


def _parts(address: str) -> tuple[str, str]:
    """Return scheme and path; `file:/x` and `file:///x` are one."""
    scheme, colon, path = address.partition(":")
    if not colon or not (scheme.isascii() and scheme.isalnum() and scheme.islower()):
        return "", ""
    return scheme, path.removeprefix("//")


def _is_doubtful(scheme: str, text: str) -> bool:
    """Tell whether something might read a text otherwise than as it stands; a file's name may hold all but NUL."""
    if scheme == FILE:
        return "\0" in text
    return _DOUBTFUL.search(text) is not None or ("::" in text and scheme not in web.SCHEMES)


def _file(root: str, path: str, most_bytes: int) -> bytes:
    """Read a file below a folder. Links are followed as long as they stay there.

    Once it is known where the links lead, each folder is opened without following any: what is exchanged meanwhile
    leads nowhere.
    """
    real_root = os.path.realpath(root)
    segments = Path(os.path.relpath(os.path.realpath(path), real_root)).parts
    if os.pardir in segments:
        raise UnreadableError("it lies outside of the places that `worker.references` names")
    try:
        descriptor = os.open(real_root, _FLAGS | os.O_DIRECTORY)
        try:
            for segment in segments:
                outer, descriptor = descriptor, os.open(segment, _FLAGS, dir_fd=descriptor)
                os.close(outer)
            return _all(descriptor, most_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__) from None


def _all(descriptor: int, most_bytes: int) -> bytes:
    """Read a file to its end."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnreadableError("it is no file")
    content = bytearray()
    while len(content) <= most_bytes and (part := os.read(descriptor, most_bytes + 1 - len(content))):
        content += part
    if len(content) > most_bytes:
        raise _too_large(most_bytes)
    return bytes(content)


def _objects(place: str, addresses: Sequence[str], most_bytes: int) -> list[bytes | Exception]:
    """Read objects of one of fsspec's file systems together, as far as that finds them below the place, too."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        return [UnreadableError(f"this worker lacks fsspec: {install('references')}")] * len(addresses)
    try:
        store, root = url_to_fs(place)
        below = root.rstrip("/") + "/"
        stores, names = zip(*map(url_to_fs, addresses), strict=True)
        if any(other != store for other in stores) or not all(_is_below(below, name) for name in names):
            return [UnreadableError("its store takes it for something outside of the place")] * len(addresses)
        contents = store.cat_ranges([*names], [0] * len(names), [most_bytes + 1] * len(names), on_error="return")
        return [_bounded(content, most_bytes) if isinstance(content, bytes) else _told(content) for content in contents]
    except BaseException as error:  # noqa: BLE001 - whatever a file system raises, e.g. that its own package is missing
        pass_on_interrupt(error)
        return [_told(error)] * len(addresses)


def _is_below(place: str, name: str) -> bool:
    return name.startswith(place) and {"", ".", ".."}.isdisjoint(name[len(place) :].split("/"))


def _bounded(content: bytes, most_bytes: int) -> bytes | Exception:
    return content if len(content) <= most_bytes else _too_large(most_bytes)


def _told_by(content: bytes | web.WebError) -> bytes | Exception:
    return content if isinstance(content, bytes) else UnreadableError(str(content))


def _told(error: BaseException) -> UnreadableError:
    what = "there is nothing" if isinstance(error, FileNotFoundError) else told(error)
    return UnreadableError(what[:200])


def _too_large(most_bytes: int) -> UnreadableError:
    return UnreadableError(f"it is larger than {most_bytes} bytes")


def _as_input(signature: Signature, content: bytes) -> Input:
    """Return the bytes as they are, or the tensor that they hold: an `.npy` file, or bare numbers of the signature."""
    if signature.kind == "bytes":
        return content
    if not content.startswith(_NPY):
        whole = math.prod(signature.shape) * np.dtype(str(signature.dtype)).itemsize
        if len(content) != whole:
            raise UnreadableError(
                f"it has {len(content)} bytes, and {signature} has {whole}; an .npy file says its form"
            )
        return Tensor(str(signature.dtype), signature.shape, content)
    shape, by_column, dtype, data = _npy(content)
    if dtype.name not in DTYPES or by_column or not dtype.isnative:
        raise UnreadableError(
            f"it holds {dtype.str} by {'column' if by_column else 'row'}: write it by row, as one of those that travel"
        )
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise UnreadableError("the .npy file is cut off")
    return Tensor(dtype.name, shape, data)


def _npy(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], bytes]:
    """Return what the header says, and the numbers; nothing is allocated on the word of a header."""
    file = io.BytesIO(content)
    try:
        header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        return *header(file), content[file.tell() :]
    except (ValueError, EOFError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise UnreadableError(f"it is no .npy file: {error}"[:200]) from None
