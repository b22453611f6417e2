"""Attacks by HTTP on the gateway: bombs, slow bodies, what is no request, and more connections than there may be.

After each one an honest request over HTTP is answered; during those that last one is answered meanwhile, too.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from load.harness.http import post
from load.hostile.arena import Attack
from load.hostile.setting import CONNECTIONS, HONEST, SLOW, TEXTS, WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from load.hostile.arena import Arena, Strike

_REPLY_S: Final = 30.0
_TRIES: Final = 20
_AT_ONCE: Final = 8
_BODY: Final = 1_000_000  # below what `setting` lets a body have
_LONG: Final = "x" * 40_000
_INFER, _PREDICT = f"/v2/models/{HONEST}/infer", f"/v1/models/{HONEST}:predict"


def _tensor(data: object, shape: object, datatype: str = "FP32", **more: object) -> dict[str, object]:
    return {"inputs": [{"name": "input", "datatype": datatype, "shape": shape, "data": data}], **more}


_ASKED: Final = post(_INFER, json.dumps(_tensor([1.0], [1, 1], parameters={"slo_ms": 10_000})).encode())


async def _told(arena: Arena, *pieces: bytes) -> int:
    """Send pieces over a new connection; returns the status that is told, 0 = none is, in its time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", arena.settings["gateway"]["port"])
    try:
        with suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(_REPLY_S):
                return int((await reader.readline())[9:12] or b"0")
        return 0
    finally:
        writer.close()


async def _is_served(arena: Arena) -> bool:
    """Tell whether an honest request is answered; one that is told to come again does."""
    for _ in range(_TRIES):
        if await _told(arena, _ASKED) == 200:
            return True
        await asyncio.sleep(1)
    return False


def _served(strike: Strike) -> Strike:
    """Return an attack after which an honest request has to be answered."""

    async def struck(arena: Arena) -> str | None:
        fault = await strike(arena)
        return fault or (None if await _is_served(arena) else "the gateway answers an honest request no more")

    struck.__doc__ = strike.__doc__
    return struck


async def _all_refused(arena: Arena, requests: Iterable[tuple[str, bytes]], most: int = 499) -> str | None:
    """Send requests, some at once; each has to be refused as the asker's own fault, or turned away for now."""
    free, wrong = asyncio.Semaphore(_AT_ONCE), []

    async def one(name: str, request: bytes) -> None:
        async with free:
            status = await _told(arena, request)
        if not (status in {0, 503} or 400 <= status <= most):
            wrong.append(f"{name}: {status}")

    async with asyncio.TaskGroup() as tasks:
        for name, request in requests:
            tasks.create_task(one(name, request))
    return f"not refused: {', '.join(sorted({*wrong}))}" if wrong else None


async def _bombs(arena: Arena) -> str | None:
    """Bodies that would be a hundred times as much as lists, arrays of texts or rows of a table."""
    cells = [_LONG, *[""] * 4_000]
    small = {
        "texts": (_INFER, _tensor(cells, [len(cells), 1])),
        "matrix": (_PREDICT, {"instances": [[_LONG], *[[""]] * 4_000]}),
        "names": (f"/serving-endpoints/{TEXTS}/invocations", {"inputs": {_LONG: [1] * 4_000, "b": [1] * 4_000}}),
        "shape": (_INFER, _tensor([], [2**31 - 1] * 16)),
        "label": (f"/v2/models/{HONEST}/feedback", {"id": "one", "label": cells}),
    }
    found = [(name, post(path, json.dumps(body).encode())) for name, (path, body) in small.items()]
    for piece in (b"[],", b'{"a":0},', b"[[]],", b'"",', b"0.5,", b"null,"):
        body = b'{"instances": [%s0]}' % (piece * (_BODY // len(piece)))
        found.append((piece.decode(), post(_PREDICT, body)))
    levels = (b"[", b'{"a":')
    found += [(f"deep {level.decode()}", post(_PREDICT, level * (_BODY // len(level)))) for level in levels]
    found.append(("nested", post(_PREDICT, b'{"instances": [%s1%s]}' % (b"[" * 900, b"]" * 900))))
    found.append(("number", post(_PREDICT, b'{"instances": [[%s]]}' % (b"9" * _BODY))))
    packed = gzip.compress(bytes(400 << 20))
    head = f"POST {_PREDICT} HTTP/1.1\r\nhost: h\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n"
    found.append(("packed", head.encode() + packed))
    return await _all_refused(arena, found * 3)


async def _no_requests(arena: Arena) -> str | None:
    """Wrong types, encodings, methods and lengths; heads without an end; bytes that are no HTTP."""
    said = json.dumps(_tensor([1.0], [1, 1])).encode()

    def typed(*lines: str, body: bytes = said, method: str = "POST", path: str = _INFER) -> bytes:
        head = [f"{method} {path} HTTP/1.1", "host: h", *lines]
        return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body

    length = f"content-length: {len(said)}"
    found = {
        "xml": typed("content-type: text/xml", "content-length: 5", body=b"<a/>\n"),
        "csv": typed("content-type: text/csv", "content-length: 4", body=b"a,b\n", path="/invocations"),
        "brotli": typed("content-encoding: br", length),
        "both lengths": typed(length, "transfer-encoding: chunked"),
        "two lengths": typed(length, "content-length: 7"),
        "negative": typed("content-length: -1"),
        "endless": typed(f"content-length: {10**30}"),
        "too long": typed("content-length: 99999999999"),
        "chunks": typed("transfer-encoding: chunked", body=b"zz\r\n" + said),
        "json length": typed(length, "inference-header-content-length: 9999999999"),
        "delete": typed(method="DELETE", body=b""),
        "websocket": typed("connection: upgrade", "upgrade: websocket", "content-length: 1", body=b"x"),
        "noise": bytes(range(256)) * 4,
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "long head": typed(*[f"x-{n}: {'y' * 1_000}" for n in range(400)], length),
        "long path": typed(length, path="/" + "a" * 60_000),
        "escapes": typed(length, path="/v2/models/%00%ff%2e%2e/infer"),
        "line ends": typed(length, "idempotency-key: a\r\n\r\nGET / HTTP/1.1"),
    }  # fmt: skip
    return await _all_refused(arena, [*found.items()] * 5)


async def _packets(arena: Arena) -> str | None:
    """Connections that send ten thousand requests in a packet each, and read none of the replies."""
    packet = _ASKED + b"GET /v2 HTTP/1.1\r\n\r\n" * 10_000

    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", arena.settings["gateway"]["port"])
        writer.write(packet)
        with suppress(ConnectionError):
            await writer.drain()
        await asyncio.sleep(1)
        writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS // 2)))
    return None


async def _slow(arena: Arena) -> str | None:
    """Bodies, heads and chunks of a byte a second; each is given up, and an honest request is answered meanwhile."""
    head = f"POST {_INFER} HTTP/1.1\r\nhost: h\r\n".encode()
    begins = (head + b"content-length: 90000\r\n\r\n{", head + b"transfer-encoding: chunked\r\n\r\n", head, b"", b"P")
    meanwhile: list[bool] = []

    async def one(begin: bytes) -> bool:
        """Tell whether the connection was ended by the other side, in its time."""
        reader, writer = await asyncio.open_connection("127.0.0.1", arena.settings["gateway"]["port"])
        ended = asyncio.create_task(reader.read())
        with suppress(ConnectionError):
            writer.write(begin)
            for _ in range(int(3 * WITHIN_S)):
                await asyncio.wait([ended], timeout=1)
                if ended.done():
                    break
                writer.write(b"1")
        writer.close()
        is_ended = ended.done()
        ended.cancel()
        await asyncio.wait([ended])
        with suppress(ConnectionError, asyncio.CancelledError):
            ended.result()
        return is_ended

    async def ask() -> None:
        await asyncio.sleep(1)
        meanwhile.append(await _is_served(arena))

    *left, _ = await asyncio.gather(*(one(begins[n % len(begins)]) for n in range(CONNECTIONS // 2)), ask())
    kept = left.count(False)
    if kept:
        return f"{kept} of {len(left)} connections that send a byte a second were kept"
    return None if all(meanwhile) else "an honest request was not answered meanwhile"


async def _connections(arena: Arena) -> str | None:
    """Four times as many connections as there may be, each with a request, silent from then on."""
    port, made = arena.settings["gateway"]["port"], list[asyncio.StreamWriter]()
    try:
        for _ in range(4 * CONNECTIONS):
            with suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                made.append(writer)
                writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n")
        return None if await _is_served(arena) else "an honest request was not answered meanwhile"
    finally:
        for writer in made:
            writer.transport.abort()


async def _fat_ids(arena: Arena) -> str | None:
    """Requests whose ids are as long as they may be, all of them new, and rows that each repeat one."""
    start = uuid.uuid4().hex
    rows = [1.0] * 400
    found = []
    for number in range(2_000):
        many = number % 20 == 0
        name, data = f"{start}{number}{'i' * 3_000}", rows if many else [1.0]
        found.append(("id", post(_INFER, json.dumps(_tensor(data, [len(data), 1], id=name)).encode())))
    return await _all_refused_or_answered(arena, found)


async def _unread(arena: Arena) -> str | None:
    """Replies of half a megabyte that nobody reads, one after the other on each connection; they are the same one."""
    data = [1.0] * 2_000
    asked = _tensor(data, [len(data), 1], id=f"{uuid.uuid4().hex}{'i' * 100}")
    request = post(f"/v2/models/{SLOW}/infer", json.dumps(asked).encode())

    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", arena.settings["gateway"]["port"], limit=1_024)
        with suppress(ConnectionError):
            for _ in range(40):
                writer.write(request)
                await writer.drain()
                await asyncio.sleep(0.2)
        writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS // 4)))
    return None


async def _all_refused_or_answered(arena: Arena, requests: Iterable[tuple[str, bytes]]) -> str | None:
    free, seen = asyncio.Semaphore(_AT_ONCE), set[int]()

    async def one(request: bytes) -> None:
        async with free:
            seen.add(await _told(arena, request))

    async with asyncio.TaskGroup() as tasks:
        for _, request in requests:
            tasks.create_task(one(request))
    strange = sorted(seen - {200, 400, 413, 503, 504})
    return f"answered with {strange}" if strange else None


DOORS = (
    Attack("http-bombs", "client", "bodies that grow a hundredfold when they are read", _served(_bombs)),
    Attack("http-noise", "client", "wrong types, lengths and encodings, and what is no HTTP", _served(_no_requests)),
    Attack("http-packets", "client", "packets of 10,000 requests, unread", _served(_packets)),
    Attack("http-slow", "client", "heads and bodies of a byte a second", _served(_slow)),
    Attack("http-connections", "client", "four times as many connections as there may be", _served(_connections)),
    Attack("http-ids", "client", "2,000 ids of 3 KB, in rows that repeat them", _served(_fat_ids)),
    Attack("http-unread", "client", "replies that nobody reads", _served(_unread)),
)
