"""Ports that are needed and taken: named before anything starts, with who has them."""

from __future__ import annotations

import os
import socket

import psutil
import pytest

from deploy.errors import StartError
from deploy.local.process import free_port
from deploy.process.ports import fault_of, owner, require_free


def test_every_port_that_is_taken_is_named_with_its_owner() -> None:
    """Its process, the command of that, and which setting wants the port; those that are free are not named."""
    with socket.socket() as page, socket.socket() as figures:
        for listener in (page, figures):
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        places = {
            "the live page": page.getsockname(),
            "metrics of joiner": figures.getsockname(),
            "metrics of learner": ("127.0.0.1", free_port()),
        }
        with pytest.raises(StartError) as refused:
            require_free(places)
    lines = str(refused.value).splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["the live page", "metrics of joiner"]
    assert all(f"is taken by process {os.getpid()} (" in line and "python" in line for line in lines[:2])
    assert lines[2:] == ["nothing was started: stop the process that listens there, or set another port"]


def test_a_long_command_ends_with_a_whole_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins with the program's name, without its folders."""
    words = ["/a/long/way/to/python", "-m", *("an-argument-that-takes-room" for _ in range(9))]
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: words)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        told = owner(listener.getsockname()[1])
    repeated = " ".join(words[2:5])
    assert told == f"process {os.getpid()} (python -m {repeated} ...)"


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("192.0.2.1", 8080)])
def test_a_place_where_nobody_can_listen_is_a_fault(host: str, port: int) -> None:
    """An address of another machine, a port that is none."""
    assert f"{host}:{port}" in fault_of(host, port)


def test_a_free_port_is_no_fault() -> None:
    """And is free afterwards."""
    port = free_port()
    assert fault_of("127.0.0.1", port) == fault_of("127.0.0.1", port) == ""
