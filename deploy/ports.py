"""Whether the ports that a deployment needs are free, and who has those that are not."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import psutil

from deploy.config.configuration import without_secrets
from deploy.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN = 100  # characters of a command line
OURS = ("deploy.cli", "skysail")


def require_free(wanted: Mapping[str, tuple[str, int]]) -> None:
    """Check that everybody can listen where it is to.

    Args:
        wanted: host and port by what they are for, such as `the live page (control.port)`.

    Raises:
        StartError: somebody cannot; the message names each place and who has it.
    """
    faults = [f"{what}: {fault}" for what, (host, port) in wanted.items() if (fault := fault_of(host, port))]
    if faults:
        raise StartError("\n".join([*faults, "nothing was started: end what listens there, or set another port"]))


def fault_of(host: str, port: int) -> str:
    """Return why nobody can listen there now; nothing if somebody can."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind((host, port))
            probe.listen()
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            return f"{host}:{port} is taken by {owner(port) or 'a process that cannot be seen from here'}"
        return f"nobody can listen on {host}:{port} ({getattr(error, 'strerror', None) or error})"
    return ""


def owner(port: int) -> str | None:
    """Say which process listens on a port of this machine, if one does: its id and its command."""
    process = _process(port)
    if process is None:
        return None
    if not process:
        return "a process of another user"
    try:
        command = " ".join(psutil.Process(process).cmdline()) or psutil.Process(process).name()
    except psutil.Error:
        return f"process {process}"
    return f"process {process} ({without_secrets(command)[:SHOWN]})"


def is_ours(port: int) -> bool:
    """Whether a process of Skysail listens on a port of this machine."""
    process = _process(port)
    try:
        words = psutil.Process(process).cmdline()[:4] if process else []
    except psutil.Error:
        return False
    return any(word == OURS[0] or word.rpartition("/")[2] == OURS[1] for word in words)


def _process(port: int) -> int | None:
    """Return who listens on a port: 0 if that is not to be seen, None if nobody does."""
    try:
        found = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == port]
    except psutil.AccessDenied:
        return None
    return (found[0].pid or 0) if found else None
