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

from schemas.records import Report
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


def probed(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a path."""
    asking = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        asking.request("GET", path)
        with asking.getresponse() as answer:
            return answer.status, answer.read().decode()
    finally:
        asking.close()


def test_a_process_is_ready_when_all_its_roles_are_and_says_what_hinders() -> None:
    """503 with a line for each thing that hinders; alive all the time, so that nobody restarts what waits."""
    exporter = PrometheusExporter(0)
    try:
        assert probed(exporter.port, "/health") == (200, "ok\n")
        assert probed(exporter.port, "/ready") == (503, "no role has reported yet: they start, or wait for Kafka\n")
        exporter(Report("selection@1", "selection", 0, {}, {"waits_for{what=configuration}": 1.0}))
        exporter(Report("learner@1", "learner", 0, {}, {"store_away": 1.0}))
        exporter(Report("worker.svc@1", "worker.svc", 0, {}, {"model_not_loaded{model=svc}": 1.0, "partitions": 4.0}))
        status, said = probed(exporter.port, "/ready")
        assert status == 503
        assert said.splitlines() == [
            "selection@1 still reads which models and applications there are",
            "learner@1 reaches no store of policy states (Redis, a file); see `skysail doctor`",
            "worker.svc@1 can load no version of svc: see `skysail model show svc`",
        ]
        assert probed(exporter.port, "/health")[0] == 200
        for role in ("selection", "learner", "worker.svc"):
            exporter(Report(f"{role}@1", role, 0, {}, {"partitions": 4.0}))
        assert probed(exporter.port, "/ready") == (200, "ok\n")
        exporter(Report("learner@1", "learner", 0, {}, {"stopped": 1.0}))
        assert probed(exporter.port, "/ready") == (503, "learner@1 stops\n")
        assert probed(exporter.port, "/nothing")[0] == 404
    finally:
        exporter.stop()


def test_a_role_that_reports_no_more_is_neither_alive_nor_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop hangs, though the thread that answers does not."""
    now = [100.0]
    monkeypatch.setattr("streams.runtime.process.prometheus.monotonic", lambda: now[0])
    exporter = PrometheusExporter(0)
    try:
        exporter(Report("loop@1", "selection", 0, {}, {"partitions": 4.0}))
        now[0] += 14
        assert probed(exporter.port, "/health")[0] == 200
        now[0] += 6
        assert probed(exporter.port, "/health") == (503, "loop@1 has reported nothing for 20 s: it stands still\n")
        assert probed(exporter.port, "/ready")[0] == 503
    finally:
        exporter.stop()
