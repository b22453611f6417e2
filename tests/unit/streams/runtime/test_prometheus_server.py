"""Scrapes are answered however many connections are held open beside them."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from streams.runtime.process.prometheus import PrometheusExporter, ScrapeServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def serving(connections: int, answer_s: float) -> Iterator[int]:
    """Serve nothing in particular for a block; gives the port."""
    server = ScrapeServer(("127.0.0.1", 0), CollectorRegistry(), connections, answer_s)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_connections_above_the_bound_are_closed_at_once() -> None:
    """They take no thread and no memory."""
    with serving(connections=2, answer_s=60) as port, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(b"GET /metrics HT")
        third = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert third.recv(1) == b""


def test_a_connection_that_asks_nothing_is_closed_and_gives_its_place_back() -> None:
    """Whoever sends a byte now and then gains no time."""
    with serving(connections=1, answer_s=0.2) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            slow.recv(1)  # ends when it is closed
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", 200),
        ("localhost", 200),
        ("[::1]:9100", 200),
        ("selection.shop.svc:9100", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:9100", 421),
        ("selection.shop.svc.evil.example", 421),
        ("", 421),
    ],
)
def test_metrics_are_served_under_names_of_ours_alone(host: str, status: int) -> None:
    """A web page that points its own name here reads nothing; Prometheus may scrape by a name of the settings."""
    exporter = PrometheusExporter(0, more_names=["selection.shop.svc"])
    asking = HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        asking.request("GET", "/metrics", headers={"Host": host})
        with asking.getresponse() as answer:
            assert answer.status == status
            assert (b"metrics.names" in answer.read()) is (status != 200)
    finally:
        asking.close()
        exporter.stop()
