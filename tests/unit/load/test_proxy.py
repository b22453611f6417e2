"""A bad network: what passes through it, what does not, and what its ends hear of that."""

from __future__ import annotations

import gc
import socket
import socketserver
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from load.harness.proxy import Proxy, Weather

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 5.0


class Echo(socketserver.BaseRequestHandler):
    """Says again what is said, after its own name."""

    def handle(self) -> None:
        """Serve one connection."""
        while heard := self.request.recv(1 << 16):
            self.request.sendall(self.server.name + heard)  # type: ignore[attr-defined]


class EchoServer(socketserver.ThreadingTCPServer):
    """A connection waits for no other to be accepted."""

    request_queue_size = 256


@contextmanager
def echo(name: bytes = b"") -> Iterator[int]:
    """Return the port of a server that echoes."""
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        server.name, server.daemon_threads = name, True  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@contextmanager
def door(proxy: Proxy, target: int) -> Iterator[socket.socket]:
    """Return a connection through the proxy."""
    with socket.create_connection(("127.0.0.1", proxy.doors[target]), PATIENCE_S) as made:
        yield made


def said(line: socket.socket, what: bytes) -> bytes:
    """Say something and return the answer, nothing where the line is dead."""
    try:
        line.sendall(what)
        return line.recv(1 << 16)
    except ConnectionError:
        return b""


def test_what_is_sent_comes_back_and_many_bytes_arrive_whole() -> None:
    """In fair weather nobody notices."""
    sent = bytes(range(256)) * 4_000
    with echo() as target, Proxy([target]) as proxy, door(proxy, target) as line:
        assert said(line, b"hello") == b"hello"
        threading.Thread(target=line.sendall, args=(sent,)).start()
        heard = b""
        while len(heard) < len(sent):
            heard += line.recv(1 << 16)
        assert heard == sent


def test_a_cut_ends_what_there_is_and_what_comes_until_it_is_mended() -> None:
    """Both are told, as by a host that refuses."""
    with echo() as target, Proxy([target]) as proxy:
        with door(proxy, target) as line:
            assert said(line, b"a") == b"a"
            proxy.cut()
            assert said(line, b"b") == b""
        with door(proxy, target) as line:
            assert said(line, b"c") == b""
        proxy.mend()
        with door(proxy, target) as line:
            assert said(line, b"d") == b"d"


def test_a_half_open_connection_takes_everything_and_never_answers_while_new_ones_work() -> None:
    """Nobody is told: whoever waits must know by itself."""
    with echo() as target, Proxy([target]) as proxy, door(proxy, target) as old:
        assert said(old, b"a") == b"a"
        proxy.half_open()
        old.sendall(b"lost")
        old.settimeout(0.2)
        with pytest.raises(TimeoutError):
            old.recv(10)
        with door(proxy, target) as new:
            assert said(new, b"b") == b"b"
        assert proxy.lines <= 1


def test_a_delay_counts_both_ways_and_not_for_each_chunk() -> None:
    """Ten chunks of one direction are late once, as on a long cable."""
    with echo() as target, Proxy([target]) as proxy, door(proxy, target) as line:
        proxy.weather = Weather(delay_s=0.05)
        began_s = time.monotonic()
        assert said(line, b"a") == b"a"
        assert time.monotonic() - began_s >= 0.1


def test_a_narrow_line_takes_its_time() -> None:
    """5,000 bytes at 50,000 a second, there and back."""
    with echo() as target, Proxy([target]) as proxy, door(proxy, target) as line:
        proxy.weather = Weather(bytes_per_s=50_000)
        began_s, heard = time.monotonic(), b""
        line.sendall(bytes(5_000))
        while len(heard) < 5_000:
            heard += line.recv(1 << 16)
        assert time.monotonic() - began_s >= 0.2


def test_an_end_does_not_wait_for_whoever_accepts_nothing() -> None:
    """As a broker that stands still."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as target, ExitStack() as undo:
        port = target.getsockname()[1]
        for _ in range(4):  # its queue is full: more connections wait
            line = undo.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", port))
        with Proxy([port]) as proxy, door(proxy, port) as line:
            line.sendall(b"a")


def test_a_door_can_lead_elsewhere() -> None:
    """As the address of a store does at a failover: who was connected has to connect anew."""
    with echo(b"1") as first, echo(b"2") as second, Proxy([first]) as proxy:
        with door(proxy, first) as line:
            assert said(line, b"a") == b"1a"
            proxy.lead(first, second)
            assert said(line, b"b") == b""
        with door(proxy, first) as line:
            assert said(line, b"c") == b"2c"


def test_an_end_leaves_nothing_open_though_others_connect_meanwhile() -> None:
    """As clients do, which never give up: what is left open would be told of whatever runs when it is found."""
    is_over = threading.Event()

    def connect(port: int) -> None:
        while not is_over.is_set():
            try:
                socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
            except OSError:
                return

    with echo() as target:
        for _ in range(20):
            with Proxy([target]) as proxy:
                threads = [threading.Thread(target=connect, args=(proxy.doors[target],)) for _ in range(4)]
                for thread in threads:
                    thread.start()
            is_over.set()
            for thread in threads:
                thread.join()
            is_over.clear()
    gc.collect()  # an open transport warns, which is an error here
