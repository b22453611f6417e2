"""An HTTP server for scrapes that nobody can fill up: so many connections at once, each for so long."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CONNECTIONS = 16  # at once; Prometheus has one or two
ANSWER_S = 5.0  # for a whole request and its answer, however slowly the other side reads and writes


class _Quiet(WSGIRequestHandler):
    """Logs nothing: a scrape is nothing to report."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Drop it."""


class ScrapeServer(WSGIServer):
    """Answers each connection in a thread of its own; those above the bound are closed unanswered.

    Args:
        address: host and port; port 0 takes a free one.
        registry: whose metrics it shows.
        connections: how many at once.
        answer_s: after which a connection is closed, whatever it waits for.
    """

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        connections: int = CONNECTIONS,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        super().__init__(address, _Quiet)
        self._room = threading.BoundedSemaphore(connections)
        self._answer_s = answer_s
        self.set_app(make_wsgi_app(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread if there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        threading.Thread(target=self._answer, args=(request, client_address), daemon=True).start()

    def _answer(self, request: Any, client_address: Any) -> None:
        place = _Place(self._room)
        end = threading.Timer(self._answer_s, _end, (request, place))
        end.daemon = True
        end.start()
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the other side is gone, or was too slow
        finally:
            end.cancel()
            place.give_back()
            self.shutdown_request(request)


class _Place:
    """One connection's place, given back once, before the other side can see the end and come again."""

    def __init__(self, room: threading.BoundedSemaphore) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._is_held = True

    def give_back(self) -> None:
        """Let another connection have it."""
        with self._lock:
            if self._is_held:
                self._is_held = False
                self._room.release()


def _end(request: socket.socket, place: _Place) -> None:
    """Have whoever waits for this connection wait no longer."""
    place.give_back()
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
