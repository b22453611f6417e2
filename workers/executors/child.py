"""The child process of a role: holds models, and answers frame by frame (`frames`) until its input ends.

    python -m workers.executors.child [LANES] [--one] [--memory=BYTES] [--models=BYTES]

--one      it holds one model, of which nothing is measured; --memory is then what the whole process may take
--memory   what models and batches may take beside libraries
--models   what of it is for models

Several parts to predict are one batch (`together`); each is answered as soon as it is done, in their order.
So many lanes predict at a time, the first one in the main thread. A thread of its own loads, so that no batch waits for
a model that is read from the disk. While a model takes long to load, another thread takes over, and the first one ends
when that model is there. One model alone is loaded where it is asked, in the main thread. The input is read in another
thread, so that the child also ends when its role dies while a model hangs. Output that models print goes to standard
error, as standard output belongs to the frames.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policies.foreign import handles_interrupts, told
from streams.operators.contract import Predicted
from workers.errors import PackageError, refusing
from workers.executors import frames
from workers.executors.footprint import Footprint, Unmeasured, give_back
from workers.executors.frames import BESIDE, NUMBER, PREDICT
from workers.executors.predictor import loaded_by, predictor
from workers.executors.together import HeldModel, headed, together
from workers.runtimes.stages.store import HERE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from workers.executors.frames import Package
    from workers.packages.autotune import Choice

_MISSING: Final = HeldModel(lambda rows: Predicted.failed(len(rows), "it is not in the models' process"))


class Models:
    """The loaded copies, and the threads that use them.

    Args:
        output: where answers are written.
        footprint: bounds and measures what they take.
        is_one: whether there is one model, which is loaded by whom it is asked.
    """

    def __init__(self, output: BinaryIO, footprint: Footprint | Unmeasured, *, is_one: bool = False) -> None:
        self._output = output
        self._is_one = is_one
        self._writing = threading.Lock()
        self._footprint = footprint
        self._copies: dict[object, HeldModel] = {}
        self._trunks: Counter[str] = Counter()  # how many copies have each
        self._loads: queue.SimpleQueue[tuple[int, object, Package | None]] = queue.SimpleQueue()
        self._free = 1  # threads that wait for something to load, less what waits for a thread
        self._holding = threading.Lock()  # on what follows
        self._unfinished: set[object] = set()  # copies that are being loaded
        self._unwanted: set[object] = set()  # of these
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # of the lanes

    def read(self, stream: BinaryIO) -> None:
        """Hand out what is asked; ends the process when nobody can ask any more."""
        while (frame := frames.read(stream)) is not None:
            what, parts = pickle.loads(frame)  # noqa: S301 - from the role that started this process
            if what == PREDICT:
                self._work.put(partial(self._predicted, parts))
                continue
            if self._is_one:
                self._work.put(partial(self._loaded_or_not, *parts[0]))
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
            self._loaded_or_not(*self._loads.get())
            with self._holding:
                is_needed = self._free <= 0
                self._free += is_needed

    def _loaded_or_not(self, number: int, copy: object, package: Package | None) -> None:
        """Load a copy, or let go of it."""
        if package is not None:
            self._answer(number, self._loaded(copy, package))
        elif self._let_go(copy):
            give_back()

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
            self._work.get()()

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
            return self._footprint.lacks.encode()
        finally:
            self._keep(copy, loaded)
        return frames.pack_loaded(choice, *cost)

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
    # A Ctrl-C is for the process that started this one, and ends it; here it would count as an error of a model.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handles_interrupts()
    is_one, memory, models_bytes = "--one" in arguments, _given(arguments, "--memory="), _given(arguments, "--models=")
    footprint = Unmeasured(memory) if is_one else Footprint(memory, models_bytes)
    models = Models(output, footprint, is_one=is_one)
    _start(partial(models.read, sys.stdin.buffer))
    if not is_one:
        _start(models.load)
        for _ in range(int(arguments[0]) - 1):
            _start(models.predict)
    models.predict()
    return 0


def _given(arguments: list[str], name: str) -> int:
    """Return what an argument says, 0 where it is not there."""
    return next((int(each.removeprefix(name)) for each in arguments if each.startswith(name)), 0)


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
    model = loaded_by(package)
    return HeldModel(predictor(model, package.sizes, package.references), headed(model, package.sizes)), model.choice


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
