"""Whether the ports of a deployment are free, and which process has a taken one."""

from __future__ import annotations

import errno
import socket
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from deploy.config.configuration import without_secrets
from deploy.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN = 100  # characters of a command line
OURS = ("deploy.cli", "skysail")


def require_free(wanted: Mapping[str, tuple[str, int]]) -> None:
    """Check that every port can be listened on.

    Args:
        wanted: host and port by what they are for, such as `the live page (control.port)`.

    Raises:
        StartError: a port is taken; the message names each and its process.
    """
    faults = [f"{what}: {fault}" for what, (host, port) in wanted.items() if (fault := fault_of(host, port))]
    if faults:
        raise StartError(
            "\n".join([*faults, "nothing was started: stop the process that listens there, or set another port"])
        )


def fault_of(host: str, port: int) -> str:
    """Return why a port cannot be listened on; empty if it can."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind((host, port))
            probe.listen()
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            return f"{host}:{port} is taken by {owner(port) or 'a process that is not visible from here'}"
        return f"cannot listen on {host}:{port} ({getattr(error, 'strerror', None) or error})"
    return ""


def owner(port: int) -> str | None:
    """Return id and command of the process that listens on a port of this machine, if one does."""
    process = _process(port)
    if process is None:
        return None
    if not process:
        return "a process of another user"
    try:
        program, *words = psutil.Process(process).cmdline() or [psutil.Process(process).name()]
    except psutil.Error:
        return f"process {process}"
    command = without_secrets(" ".join([Path(program).name, *words]))
    return f"process {process} ({textwrap.shorten(command, SHOWN, placeholder=' ...')})"


def is_ours(port: int) -> bool:
    """Whether a process of Skysail listens on a port of this machine."""
    process = _process(port)
    try:
        words = psutil.Process(process).cmdline()[:4] if process else []
    except psutil.Error:
        return False
    return any(word == OURS[0] or word.rpartition("/")[2] == OURS[1] for word in words)


def _process(port: int) -> int | None:
    """Return the pid that listens on a port: 0 if it is not visible, None if there is none."""
    try:
        found = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == port]
    except psutil.AccessDenied:
        return None
    return (found[0].pid or 0) if found else None
