"""Attacks by what comes beside Kafka: folders of traces, addresses of rows, and names of hosts.

Offsets and times near 2^63 are not among them: only a hostile broker says such, and the harness has none.
`tests/unit/streams/runtime/test_kafka_batches.py` has those, under a sanitizer of undefined behaviour in CI.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import http.server
import json
import os
import shutil
import sys
import threading
import uuid
import zlib
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from load.hostile.arena import Attack
from load.hostile.setting import ADDRESSED, HONEST, row
from schemas import topics
from schemas.records import Query
from schemas.wire import write_long
from streams.client import Client
from streams.trace.manifest import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from load.hostile.arena import Arena

_COMMAND_S: Final = 60.0  # where others use the machine, too; what is held up waits for ever
_COMMAND_KIB: Final = 700 << 10
_BOMB_BYTES: Final = 400 << 20
_SECRET: Final = b"SECRET"
_OPEN: Final = b"open"
_SYNC_BYTES: Final = 16
_RECORDED: Final = 40

# --- folders of traces ------------------------------------------------------------------------------------------------


async def _led_out(arena: Arena) -> str | None:
    """Traces whose parts lie elsewhere are recorded on, shown and replayed: the file there stays as it is."""
    precious = arena.stage.folder / f"{arena.prefix}-traces" / "precious.txt"
    await _recorded(arena, "copied")
    precious.write_bytes(_SECRET * 1_000)
    before = precious.stat().st_mtime_ns, precious.read_bytes()
    for number, name in enumerate((str(precious), f"../{precious.name}", "link")):
        folder = await _recorded(arena, f"led-out-{number}")
        part = _parts(folder)[0]
        if name == "link":
            (folder / part["file"]).unlink()
            (folder / part["file"]).symlink_to(precious)
        _say(folder, file=part["file"] if name == "link" else name, bytes=0, sha256=sha256().hexdigest())
        for command in (("record", "--topics", topics.QUERIES), ("trace", "show"), ("replay", "--offline")):
            fault, _ = await _command(arena, *command, str(folder))
            if not precious.exists() or (precious.stat().st_mtime_ns, precious.read_bytes()) != before:
                return f"`skysail {command[0]}` changed a file that a trace names"
            if fault:
                return fault
    return None


async def _bad_folders(arena: Arena) -> str | None:
    """Folders that are no traces: each command ends with a sentence, in time and in little memory."""
    for spoil in (_bomb, _device, _pipe, _deep, _noise):
        folder = await _recorded(arena, f"bad{spoil.__name__}")
        spoil(folder)
        for command in (("trace", "show"), ("replay", "--offline")):
            fault, code = await _command(arena, *command, str(folder))
            if fault or not code:
                return f"{spoil.__name__[1:]}: {fault or f'`skysail {command[0]}` took it'}"
    return None


async def _recorded(arena: Arena, name: str) -> Path:
    """Return a copy of a trace of queries that were sent when the first one was asked for.

    Raises:
        ChildProcessError: it could not be recorded.
    """
    place = arena.stage.folder / f"{arena.prefix}-traces"
    if not place.exists():
        begin = datetime.now(UTC).isoformat(timespec="seconds")
        await arena.send(topics.QUERIES, (Query(uuid.uuid4().hex, HONEST, row(1)) for _ in range(_RECORDED)))
        given = "record", "--topics", topics.QUERIES, "--from", begin, str(place / "sound")
        fault, code = await _command(arena, *given)
        if fault or code:
            raise ChildProcessError(fault or f"a trace could not be recorded ({code})")
    shutil.copytree(place / "sound", place / name)
    return place / name


async def _command(arena: Arena, *given: str) -> tuple[str, int]:
    """Run a command of ours; return what is wrong with how it ended, and its status."""
    bounded = ("sh", "-c", f'ulimit -d {_COMMAND_KIB}; exec nice -n 10 "$@"', "sh", sys.executable, "-P", "-m")
    told, there = asyncio.subprocess.PIPE, os.pathsep.join(filter(None, sys.path))
    child = await asyncio.create_subprocess_exec(
        *bounded,
        *("deploy.cli", *given, "--config", str(arena.system.settings_file)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=told,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": there},
    )
    name = f"`skysail {' '.join(given[:2])}`"
    try:
        async with asyncio.timeout(_COMMAND_S):
            said, _ = await child.communicate()
    except TimeoutError:
        return f"{name} did not end within {_COMMAND_S:g} s", 1
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    code = child.returncode or 0
    if code < 0 or b"Traceback" in said or not said.strip():
        return f"{name} ended with {code} and said {said[-200:]!r}", code
    return "", code


def _parts(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / FILE).read_text())["topics"][topics.QUERIES]["parts"]
    return found


def _say(folder: Path, **fields: object) -> None:
    """Change what the manifest says of the first part."""
    document = json.loads((folder / FILE).read_text())
    document["topics"][topics.QUERIES]["parts"][0] |= fields
    (folder / FILE).write_text(json.dumps(document))


def _pretend(folder: Path, content: bytes) -> None:
    """Put content into the first part, under its right checksum."""
    (folder / _parts(folder)[0]["file"]).write_bytes(content)
    _say(folder, bytes=len(content), sha256=sha256(content).hexdigest())


def _bomb(folder: Path) -> None:
    """A block of zeros, deflated to a thousandth."""
    content = (folder / _parts(folder)[0]["file"]).read_bytes()
    sync = content[-_SYNC_BYTES:]
    head = content[: content.index(sync) + _SYNC_BYTES]
    deflater = zlib.compressobj(9, wbits=-15)
    block = b"".join(deflater.compress(bytes(1 << 20)) for _ in range(_BOMB_BYTES >> 20)) + deflater.flush()
    _pretend(folder, head + write_long(1) + write_long(len(block)) + block + sync)


def _device(folder: Path) -> None:
    _replaced(folder, lambda path: path.symlink_to("/dev/zero"))


def _pipe(folder: Path) -> None:
    _replaced(folder, os.mkfifo)


def _replaced(folder: Path, make: Callable[[Path], None]) -> None:
    path = folder / _parts(folder)[0]["file"]
    path.unlink()
    make(path)
    _say(folder, bytes=1 << 50)


def _deep(folder: Path) -> None:
    (folder / FILE).write_text("[" * 200_000)


def _noise(folder: Path) -> None:
    """A header that is none."""
    _pretend(folder, b"Obj\x01" + b"\xff\x02" * 1_000)


# --- addresses of rows ------------------------------------------------------------------------------------------------


class _Web(http.server.BaseHTTPRequestHandler):
    """A web server: a folder that workers may read, a secret beside it, pages that lead there or have no end."""

    def do_GET(self) -> None:
        """Answer."""
        name = self.path.removeprefix("/images/")
        if name == "go":
            self._head(http.HTTPStatus.FOUND, Location="/secret")
        elif name == "bomb":
            packed = gzip.compress(bytes(_BOMB_BYTES))
            self._head(http.HTTPStatus.OK, **{"Content-Encoding": "gzip", "Content-Length": str(len(packed))})
            self.wfile.write(packed)
        elif name == "endless":
            self._head(http.HTTPStatus.OK)
            for _ in range(_BOMB_BYTES >> 20):
                self.wfile.write(bytes(1 << 20))
        else:
            self._head(http.HTTPStatus.OK)
            self.wfile.write(_OPEN if self.path == "/images/open" else _SECRET)

    def _head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing: readers that have enough hang up."""


@contextmanager
def _web(port: int) -> Iterator[None]:
    """Serve for the time of a block."""
    with _Server(("127.0.0.1", port), _Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def _addresses(arena: Arena) -> str | None:
    """Addresses that seem to lie in a place of the web and lead out of it, or to what has no end."""
    place = arena.settings["worker"]["references"][0]
    parts = urlsplit(place)
    out = ("%2e%2e/secret", "%2e%2e%2fsecret", "\t../secret", "../secret", "..\\secret", "a/..;/../secret", "go")
    addresses = [f"{place}{name}" for name in (*out, "bomb", "endless", "?/../secret", "#/../secret")]
    addresses += [f"http://x@{parts.netloc}/secret", f"http://{parts.netloc}/secret", f"http://{parts.netloc}/images"]
    with _web(parts.port or 0):
        async with Client(arena.stage.bootstrap, arena.prefix) as client:
            for address in (*addresses, f"{place}open"):
                answer = await client.predict(ADDRESSED, address, slo_ms=10_000, timeout_s=30)
                if _SECRET.decode() in str(answer):
                    return f"{address!r} shows what lies outside of its place"
    return None if answer.answer == _OPEN.decode() else f"a row in its place was not read afterwards: {answer.reason}"


# --- names of hosts ---------------------------------------------------------------------------------------------------


async def _foreign_hosts(arena: Arena) -> str | None:
    """The metrics of every process are asked for under names that a web page may point here."""
    first = arena.settings["metrics"]["port"]
    for port in range(first, first + len(arena.system.pids)):
        for host, wanted in (("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421), ("localhost", 200)):
            status = await asyncio.to_thread(_asked, port, host)
            if status != wanted:
                return f"port {port} answered {status} to the host {host!r}"
    return None


def _asked(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Host": host})
        with connection.getresponse() as answer:
            answer.read()
            return answer.status
    finally:
        connection.close()


BESIDE = (
    Attack("led-out", "operator", "traces that name other files", _led_out),
    Attack("bad-folders", "operator", "bombs, devices, pipes and noise as traces", _bad_folders),
    Attack("addresses", "client", "addresses that leave their place, or have no end", _addresses),
    Attack("foreign-hosts", "operator", "metrics asked for under other names", _foreign_hosts),
)
