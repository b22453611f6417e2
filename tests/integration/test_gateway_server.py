"""The gateway's server on a real port: its bounds, TLS, and a stop that waits for what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest
import trustme

from streams.gateway.server import GatewayServer, Listening
from tests.unit.streams.gateway.requests import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}


@asynccontextmanager
async def serving(there: Served, **more: Any) -> AsyncIterator[tuple[GatewayServer, asyncio.Event]]:
    """Serve an application; yields the server, and what stops it."""
    server, stop = GatewayServer(there.application, Listening("127.0.0.1", 0, **more)), asyncio.Event()
    async with there:
        running = asyncio.create_task(server.run(stop))
        while not server.is_started:
            assert not running.done()
            await asyncio.sleep(0.01)
        try:
            yield server, stop
        finally:
            stop.set()
            await running


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    while not condition():  # noqa: ASYNC110 - a server tells nobody
        await asyncio.sleep(0.01)


async def head(port: int, sent: bytes) -> tuple[bytes, asyncio.StreamWriter]:
    """Send bytes and return the first line of what comes, which is empty where the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await reader.readline(), writer
    except ConnectionResetError:
        return b"", writer


POST = b"POST /v2/models/iris/infer HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(orjson.dumps(BODY))
GET = b"GET /v2/health/live HTTP/1.1\r\nhost: here\r\n\r\n"


async def test_connections_beyond_the_bound_are_told_so() -> None:
    """503 and the end of the connection; when others have gone there is room again."""
    there = Served()
    async with serving(there, connections=2) as (server, _):
        there.asker.gate.clear()
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        for _, writer in held:
            writer.write(POST + orjson.dumps(BODY))
        await until(lambda: len(there.asker.batches) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 503 ")
        lines, _, content = told.partition(b"\r\n\r\n")
        assert b"content-length: %d" % len(content) in lines
        writer.close()
        held[0][1].close()
        await held[0][1].wait_closed()
        await until(lambda: server.connections <= 1)
        line, third = await head(server.port, GET)
        assert line == b"HTTP/1.1 200 OK\r\n"
        there.asker.gate.set()
        assert await held[1][0].readline() == b"HTTP/1.1 200 OK\r\n"
        held[1][1].close()
        third.close()


async def test_the_connection_that_has_been_silent_longest_makes_room() -> None:
    """Who keeps connections and says nothing keeps nobody out; one that is in use stays."""
    async with serving(Served(), connections=3) as (server, _):
        kept = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        for reader, writer in (*kept, kept[0]):  # the first one is the last that was used
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(len(b'{"live":true}'))
        line, fourth = await head(server.port, GET)
        assert line == b"HTTP/1.1 200 OK\r\n"
        assert await kept[1][0].read() == b""  # its end
        for reader, writer in (kept[0], kept[2]):
            writer.write(GET)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for _, writer in kept:
            writer.close()
        fourth.close()


async def test_requests_that_wait_behind_one_are_few() -> None:
    """A packet holds ten thousand requests of twenty bytes; they do not become ten thousand that wait."""
    there = Served()
    async with serving(there) as (server, _):
        there.asker.gate.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(POST + orjson.dumps(BODY) + b"GET / HTTP/1.1\r\n\r\n" * 10_000)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await until(lambda: not server.connections)
        there.asker.gate.set()
        writer.close()


async def test_some_requests_at_once_on_a_connection_are_answered_in_order() -> None:
    """As HTTP/1.1 allows."""
    async with serving(Served()) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GET * 9 + b"GET /none HTTP/1.1\r\nconnection: close\r\n\r\n")
        told = await reader.read()
        assert [reply[:3] for reply in told.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 9 + [b"404"]
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /v2/models/iris/infer HTTP/1.1\r\nhost: h"])
async def test_a_head_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    """Nobody holds a connection by silence, or by a line a minute."""
    async with serving(Served(), within_s=0.1) as (server, _):
        line, writer = await head(server.port, sent)
        assert line == b""
        writer.close()
        await until(lambda: not server.connections)


async def test_what_is_no_http_is_told_so() -> None:
    """As JSON, and the connection ends; the log stays empty, whoever asks."""
    async with serving(Served()) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"no HTTP at all\r\n\r\n")
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 400 ")
        assert orjson.loads(told.partition(b"\r\n\r\n")[2]) == {"error": "this is no HTTP/1.1 request"}
        writer.close()


async def test_a_head_without_an_end_is_given_up() -> None:
    """Headers that never end do not fill memory."""
    async with serving(Served()) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /v2 HTTP/1.1\r\n")
            for number in range(1_000):
                writer.write(b"x-%d: %s\r\n" % (number, b"y" * 1_000))
                await writer.drain()
        await until(lambda: not server.connections)
        writer.close()


async def test_a_kept_connection_serves_many_requests_and_may_be_silent_between() -> None:
    """The bound is on heads that have begun, not on the pause between requests."""
    async with (
        serving(Served(), within_s=0.1) as (server, _),
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        for _ in range(3):
            async with session.post("/v2/models/iris/infer", json=BODY) as reply:
                assert reply.status == 200
            await asyncio.sleep(0.2)
            assert server.connections == 1


async def test_replies_are_sent_at_once() -> None:
    """Head and body are two writes; the second one does not wait until the first has been acknowledged."""
    async with (
        serving(Served()) as (server, _),
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
        session.get("/v2/health/live"),
    ):
        (kept,) = server._server.server_state.connections
        place = kept.transport.get_extra_info("socket")
        assert place.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_it_speaks_tls(tmp_path: Path) -> None:
    """With the certificate that the settings name; a file that is none is refused at the start."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        serving(Served(), certificate=certificate, key=key) as (server, _),
        aiohttp.ClientSession(server.address, connector=aiohttp.TCPConnector(ssl=trusting)) as session,
        session.post("/v2/models/iris/infer", json=BODY) as reply,
    ):
        assert server.address.startswith("https://")
        assert reply.status == 200
    with pytest.raises(OSError, match=r"PEM|SSL"):
        GatewayServer(Served().application, Listening("127.0.0.1", 0, certificate=key, key=certificate))


async def test_what_is_under_way_is_answered_when_it_stops() -> None:
    """New connections are refused meanwhile."""
    there = Served()
    async with (
        serving(there) as (server, stop),
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        there.asker.gate.clear()
        asked = asyncio.create_task(session.post("/v2/models/iris/infer", json=BODY))
        await until(lambda: bool(there.asker.batches))
        stop.set()
        await until(lambda: not server.is_started)
        there.asker.gate.set()
        async with await asked as reply:
            assert reply.status == 200


async def test_who_does_not_read_its_replies_is_given_up() -> None:
    """Replies that nobody takes do not stay in memory."""
    row = {"name": "x", "datatype": "FP32", "shape": [4_096, 4], "data": [1] * (4 * 4_096)}
    sent = orjson.dumps({"inputs": [row]})
    request = b"POST /v2/models/iris/infer HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(sent)
    there = Served(rows=100_000, each=1 << 20, together=100 << 20)
    async with serving(there, within_s=0.5) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_024)
        with contextlib.suppress(ConnectionError):  # it is closed while still more is sent
            for _ in range(60):
                writer.write(request + sent)
                await writer.drain()
        await until(lambda: not server.connections)
        writer.close()


async def test_who_does_not_read_its_reply_is_left_behind_at_a_stop() -> None:
    """It keeps neither the process nor a connection for longer than what is under way may take."""
    row = {"name": "x", "datatype": "FP32", "shape": [4_096, 4], "data": [1] * (4 * 4_096)}
    sent = orjson.dumps({"inputs": [row]})
    request = b"POST /v2/models/iris/infer HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(sent)
    there = Served(rows=100_000, each=1 << 20, together=100 << 20)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.setblocking(False)
        async with serving(there, within_s=60.0) as (server, stop):
            await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", server.port))
            for _ in range(16):
                await asyncio.get_running_loop().sock_sendall(line, request + sent)
            await until(lambda: len(there.asker.batches) >= 2)
            stop.set()
        assert not server.connections
