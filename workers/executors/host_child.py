"""The child process of a host: holds several models, and answers frame by frame until its input ends.

    python -m workers.executors.host_child LANES [--memory=BYTES]    that models and batches may take beside libraries

    host ── (number, what, copy, argument), pickled ──▶ child      load: a `Package`; predict: rows; unload: nothing
    host ◀─ number, and what `frames` has for it ────── child      in the order in which they are done

So many lanes predict at a time, the first one in the main thread. A thread of its own loads, so that no batch waits for
a model that is read from the disk. The input is read in another thread, so that the child also ends when its host dies
while a model hangs. Output that models print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from workers.errors import PackageError
from workers.executors import frames
from workers.executors.child import given
from workers.executors.footprint import Footprint, give_back
from workers.executors.predictor import predictor
from workers.inputs.references import References
from workers.packages.autotune import SIZES
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from workers.packages.autotune import Choice

    Predict: TypeAlias = Callable[[Sequence[Input]], Predicted]

NUMBER: Final = struct.Struct(">Q")
LOAD, UNLOAD, PREDICT = "load", "unload", "predict"


class Package(NamedTuple):
    """A package that is to be loaded, and how; see `workers.packages.loading.load_package`."""

    folder: str
    digest: str = ""
    threads: int = 1
    allow_pickle: bool = False
    code: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    measured_sizes: tuple[int, ...] = SIZES
    references: References = References()


class Models:
    """The loaded copies, and the threads that use them."""

    def __init__(self, output: BinaryIO, footprint: Footprint) -> None:
        self._output = output
        self._writing = threading.Lock()
        self._footprint = footprint
        self._copies: dict[object, Predict] = {}
        self._loads: queue.SimpleQueue[tuple[int, object, Package | None]] = queue.SimpleQueue()
        self._batches: queue.SimpleQueue[tuple[int, object, Any]] = queue.SimpleQueue()

    def read(self, stream: BinaryIO) -> None:
        """Hand out what is asked; ends the process when nobody can ask any more."""
        while (frame := frames.read(stream)) is not None:
            number, what, copy, argument = pickle.loads(frame)  # noqa: S301 - from the host that started this process
            if what == PREDICT:
                self._batches.put((number, copy, argument))
            else:  # in their order: a copy may be let go of while it is being loaded
                self._loads.put((number, copy, argument))
        os._exit(0)

    def load(self) -> None:
        """Load copies and let go of them, one after the other, without end."""
        while True:
            number, copy, package = self._loads.get()
            if package is not None:
                self._answer(number, self._loaded(copy, package))
            elif self._copies.pop(copy, None) is not None:
                give_back()

    def predict(self) -> None:
        """Predict batch after batch, without end."""
        while True:
            number, copy, rows = self._batches.get()
            self._answer(number, frames.pack(self._copies[copy](rows)))

    def _loaded(self, copy: object, package: Package) -> bytes:
        try:
            (predict, choice), size_bytes = self._footprint.measured(Path(package.folder), lambda: _predictor(package))
        except PackageError as error:
            return str(error).encode()
        except MemoryError:
            return b"it does not fit into the memory of its host (hosts.<pool>.memory_mib)"
        self._copies[copy] = predict
        return frames.pack_hosted(choice, size_bytes)

    def _answer(self, number: int, body: bytes) -> None:
        with self._writing:
            frames.write(self._output, NUMBER.pack(number) + body)


def main(arguments: list[str]) -> int:
    """Serve models until the input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lanes, *flags = arguments
    models = Models(output, Footprint(int(given(flags, "--memory=") or 0)))
    threads = [models.load, *[models.predict] * (int(lanes) - 1)]
    for work in threads:
        threading.Thread(target=work, daemon=True).start()
    threading.Thread(target=models.read, args=(sys.stdin.buffer,), daemon=True).start()
    models.predict()
    return 0


def _predictor(package: Package) -> tuple[Predict, Choice | None]:
    """Return what answers batches by a package, and what was chosen of its forms."""
    model = load_package(
        package.folder,
        allow_pickle=package.allow_pickle,
        digest=package.digest or None,
        threads=package.threads,
        sizes=package.measured_sizes,
        code=package.code,
    )
    return predictor(model, package.sizes, package.references), model.choice


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
