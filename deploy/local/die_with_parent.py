"""Runs a program that is killed when the process that started it dies, however it dies.

    python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...

The program replaces this one, so its pid is the one that was started. A separate step, not a `preexec_fn`: code between
fork and exec may deadlock in a process with threads. Imports nothing of Skysail: it runs with `-I -S`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2); survives exec
_CANNOT_EXECUTE = 127  # as shells say it


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the program."""
    parent, *argv = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            sys.exit("The starting process was gone before the program started.")
    # Python ignores it; ignored signals are inherited through exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - becoming the program is this file's purpose; there is no shell
    except OSError as error:
        print(f"Cannot execute {argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_CANNOT_EXECUTE)


if __name__ == "__main__":
    main(sys.argv[1:])
