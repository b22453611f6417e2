"""The child process of a `ProcessExecutor`: loads one package, then answers frame by frame until its input ends.

    python -m workers.executors.child FOLDER DIGEST THREADS [--allow-pickle] [--code=MODULE,...]
        [--sizes=N,N,...] [--measured=N,...] [--memory=BYTES] [--references=JSON]

Output that the model prints goes to standard error; standard output belongs to the frames. The input is read in a
thread of its own, so that the child also ends when its worker dies while the model hangs.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING

from policies.foreign import handles_interrupts
from workers.errors import PackageError, refusing
from workers.executors import frames
from workers.executors.predictor import predictor
from workers.inputs.references import References
from workers.packages.autotune import SIZES
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from typing import BinaryIO


def main(arguments: list[str]) -> int:
    """Serve one package; returns the exit status."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    folder, digest, threads, *flags = arguments
    leave_interrupts()
    bound(flags)
    try:
        with refusing("it cannot be loaded", but=(MemoryError,)):
            model = load_package(
                folder,
                allow_pickle="--allow-pickle" in flags,
                digest=digest or None,
                threads=int(threads),
                sizes=_sizes(flags, "--measured=") or SIZES,
                code=tuple(filter(None, given(flags, "--code=").split(","))),
                root=given(flags, "--root="),
            )
            references = References(*json.loads(given(flags, "--references=") or "[]"))
            predict = predictor(model, _sizes(flags, "--sizes="), references)
    except PackageError as error:
        frames.write(output, str(error).encode())
        return 1
    except MemoryError:
        frames.write(output, b"it does not fit into the memory that worker.memory_mib gives it")
        return 1
    choice = model.choice
    del model  # with the rows that it was warmed up by
    inputs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, inputs), daemon=True).start()
    frames.write(output, frames.pack_loaded(choice))
    while True:
        rows = pickle.loads(inputs.get())  # noqa: S301 - from the worker that started this process
        frames.write(output, frames.pack(predict(rows)))


def _sizes(flags: list[str], name: str) -> tuple[int, ...]:
    """Return the batch sizes of a flag; none = nothing is said."""
    sizes = given(flags, name)
    return tuple(map(int, sizes.split(","))) if sizes else ()


def leave_interrupts() -> None:
    """Leave a Ctrl-C to the process that started this one, and ends it; here it would count as an error of a model."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handles_interrupts()


def bound(flags: list[str]) -> None:
    """Bound the data of this process, not its addresses, of which libraries reserve many gigabytes."""
    if memory := given(flags, "--memory="):
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))


def given(flags: list[str], name: str) -> str:
    """Return what a flag says, "" where it is not there."""
    return next((flag.removeprefix(name) for flag in flags if flag.startswith(name)), "")


def _read(stream: BinaryIO, inputs: queue.SimpleQueue[bytes]) -> None:
    while (frame := frames.read(stream)) is not None:
        inputs.put(frame)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
