"""The child process of a host: holds several models, and answers frame by frame until its input ends.

    python -m workers.executors.host_child LANES [--memory=BYTES] [--models=BYTES]

--memory is what models and batches may take beside libraries, --models what of it is for models.

    host ── (what, parts), pickled ───────────────────▶ child      a part: number, copy, and to load a `Package`,
                                                                   to predict rows, to unload nothing
    host ◀─ number, and what `frames` has for it ────── child      in the order in which they are done

Several parts to predict are one batch (`together`); each is answered as soon as it is done, in their order.
So many lanes predict at a time, the first one in the main thread. A thread of its own loads, so that no batch waits for
a model that is read from the disk. While a model takes long to load, another thread takes over, and the first one ends
when that model is there. The input is read in another thread, so that the child also ends when its host dies
while a model hangs. Output that models print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policies.foreign import told
from streams.operators.contract import Predicted
from workers.errors import PackageError, refusing
from workers.executors import frames
from workers.executors.child import given, leave_interrupts
from workers.executors.footprint import Footprint, give_back
from workers.executors.predictor import predictor
from workers.executors.together import HeldModel, headed, together
from workers.inputs.references import References
from workers.packages.autotune import SIZES
from workers.packages.loading import load_package
from workers.runtimes.stages.store import HERE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from workers.packages.autotune import Choice
    from workers.packages.disk_cache import DiskCache

NUMBER: Final = struct.Struct(">Q")
LOAD, BESIDE, UNLOAD, PREDICT = "load", "load beside", "unload", "predict"  # the second: another one is still loaded
_MISSING: Final = HeldModel(lambda rows: Predicted.failed(len(rows), "it is not in the models' process"))


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
    cache: DiskCache | None = None
    root: str = ""


class Models:
    """The loaded copies, and the threads that use them."""

    def __init__(self, output: BinaryIO, footprint: Footprint) -> None:
        self._output = output
        self._writing = threading.Lock()
        self._footprint = footprint
        self._copies: dict[object, HeldModel] = {}
        self._trunks: Counter[str] = Counter()  # how many copies have each
        self._loads: queue.SimpleQueue[tuple[int, object, Package | None]] = queue.SimpleQueue()
        self._free = 1  # threads that wait for something to load, less what waits for a thread
        self._holding = threading.Lock()  # on what follows
        self._unfinished: set[object] = set()  # copies that are being loaded
        self._unwanted: set[object] = set()  # of these
        self._batches: queue.SimpleQueue[list[tuple[int, object, Any]]] = queue.SimpleQueue()

    def read(self, stream: BinaryIO) -> None:
        """Hand out what is asked; ends the process when nobody can ask any more."""
        while (frame := frames.read(stream)) is not None:
            what, parts = pickle.loads(frame)  # noqa: S301 - from the host that started this process
            if what == PREDICT:
                self._batches.put(parts)
                continue
            with self._holding:  # before anybody can be done with it
                self._free -= 1
                is_short = what == BESIDE and self._free < 0
                self._free += is_short
            self._loads.put(parts[0])  # in their order: one makes room for the next
            if is_short:
                _start(self.load)
        os._exit(0)

    def load(self) -> None:
        """Load copies and let go of them, one after the other, until another thread has taken over."""
        is_needed = True
        while is_needed:
            number, copy, package = self._loads.get()
            if package is not None:
                self._answer(number, self._loaded(copy, package))
            elif self._let_go(copy):
                give_back()
            with self._holding:
                is_needed = self._free <= 0
                self._free += is_needed

    def _let_go(self, copy: object) -> bool:
        """Let go of a copy, also of one that another thread is loading; tell whether it was there."""
        with self._holding:
            gone = self._copies.pop(copy, None)
            if gone is not None:
                self._count(gone, -1)
            elif copy in self._unfinished:
                self._unwanted.add(copy)
        return gone is not None

    def predict(self) -> None:
        """Predict batch after batch, without end."""
        while True:
            self._predicted(self._batches.get())

    def _predicted(self, parts: list[tuple[int, object, Any]]) -> None:
        """Predict one batch; nothing holds its models afterwards, as they may be let go of."""
        asked = [(self._copies.get(copy, _MISSING), rows) for _, copy, rows in parts]
        left = [(number, len(rows)) for number, _, rows in reversed(parts)]
        try:
            for predicted in together(asked, HERE.recent if self._shares(asked[0][0]) else None):
                body = frames.pack(predicted)
                self._answer(left.pop()[0], body)
        except BaseException as error:  # noqa: BLE001 - what a model has spoilt here, and not in its rows
            for number, rows in reversed(left):
                self._answer(number, frames.pack(Predicted.failed(rows, told(error))))

    def _count(self, copy: HeldModel, change: int) -> None:
        """Note how many copies have a trunk."""
        if copy.headed is not None:
            self._trunks[copy.headed.trunk.digest] += change

    def _shares(self, copy: HeldModel) -> bool:
        """Tell whether another copy has the same trunk."""
        return copy.headed is not None and self._trunks[copy.headed.trunk.digest] > 1

    def _loaded(self, copy: object, package: Package) -> bytes:
        """Load a copy, which is kept unless it has been let go of meanwhile; returns the answer."""
        self._unfinished.add(copy)
        loaded: HeldModel | None = None
        try:
            with refusing("it cannot be loaded", but=(MemoryError,)):
                (loaded, choice), *cost = self._footprint.measured(Path(package.folder), lambda: _copy(package))
        except PackageError as error:
            return str(error).encode()
        except MemoryError:
            return b"it does not fit into the memory of its host (hosts.<pool>.memory_mib)"
        finally:
            self._keep(copy, loaded)
        return frames.pack_hosted(choice, *cost)

    def _keep(self, copy: object, loaded: HeldModel | None) -> None:
        """Note that a copy is not being loaded any more, and what was loaded."""
        with self._holding:
            self._unfinished.discard(copy)
            if copy in self._unwanted:
                self._unwanted.discard(copy)
            elif loaded is not None:
                self._copies[copy] = loaded
                self._count(loaded, 1)

    def _answer(self, number: int, body: bytes) -> None:
        with self._writing:
            frames.write(self._output, NUMBER.pack(number) + body)


def main(arguments: list[str]) -> int:
    """Serve models until the input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    leave_interrupts()
    lanes, *flags = arguments
    bounds = (int(given(flags, name) or 0) for name in ("--memory=", "--models="))
    models = Models(output, Footprint(*bounds))
    _start(partial(models.read, sys.stdin.buffer))
    _start(models.load)
    for _ in range(int(lanes) - 1):
        _start(models.predict)
    models.predict()
    return 0


def _start(work: Callable[[], None]) -> None:
    """Do something in a thread, which does not keep the process from ending."""
    threading.Thread(target=_to_the_end, args=(work,), daemon=True).start()


def _to_the_end(work: Callable[[], None]) -> None:
    """Do a thread's work; if it fails, for want of memory say, the process ends, which the host notices at once."""
    try:
        work()
    except BaseException:  # noqa: BLE001 - nobody else would hear of it
        traceback.print_exc()
        os._exit(1)


def _copy(package: Package) -> tuple[HeldModel, Choice | None]:
    """Return what answers batches by a package, and what was chosen of its forms."""
    model = load_package(
        package.folder,
        allow_pickle=package.allow_pickle,
        digest=package.digest or None,
        threads=package.threads,
        sizes=package.measured_sizes,
        code=package.code,
        root=package.root,
        cache=package.cache,
    )
    return HeldModel(predictor(model, package.sizes, package.references), headed(model, package.sizes)), model.choice


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
