"""A collector of OpenTelemetry in the process of a test: it decodes what it is sent by OTLP's own protocol."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Received:
    """What a collector was sent.

    Attributes:
        endpoint: where it takes.
        status: that it answers.
        bodies: of requests.
    """

    def __init__(self, status: int) -> None:
        self.endpoint = ""
        self.status = status
        self.bodies: list[bytes] = []

    def told(self) -> list[Any]:
        """Return the spans of each resource."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        return [one for body in [*self.bodies] for one in ExportTraceServiceRequest.FromString(body).resource_spans]


@contextmanager
def receiving(status: int = 200) -> Iterator[Received]:
    """Run a collector for a block."""
    received = Received(status)

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(received.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    received.endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def spans_of(received: Received) -> list[Any]:
    """Return all spans."""
    return [span for each in received.told() for scope in each.scope_spans for span in scope.spans]
