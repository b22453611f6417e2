"""Who serves at an address, seen from outside."""

import os
import socket

import pytest

from load.harness import environment, processes


def test_the_process_that_listens_at_an_address_is_found() -> None:
    """This one, if it is this one; on another machine nobody is seen."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert [*processes.listening(f"127.0.0.1:{port}").values()] == [os.getpid()]
        assert processes.listening(f"192.0.2.1:{port}") == {}
    assert processes.listening(f"127.0.0.1:{port}") == {}


def test_a_broker_is_described_by_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that runs already: heap and collector are most of what a p99 shows."""
    line = ["java", "-Xmx1024m", "-XX:+UseZGC", "-cp", "jars/kafka-clients-4.3.1.jar:jars/other.jar", "kafka.Kafka"]
    monkeypatch.setattr(environment, "listening", lambda _: {"java": 4711})
    monkeypatch.setattr(environment.psutil, "Process", lambda _: type("Process", (), {"cmdline": lambda _: line})())
    assert environment.broker_command("127.0.0.1:9092") == "kafka-clients 4.3.1, -Xmx1024m, -XX:+UseZGC"
