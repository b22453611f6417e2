"""Who may read the control page over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, web

from streams.control.app import PAGE
from streams.control.page import host_guard as guarded
from streams.control.page.host_guard import guard, headers, runner
from streams.runtime.process.host_names import is_ours, names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADDED = headers(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Serve one view, guarded; half a request is waited for a fifth of a second."""
    monkeypatch.setattr(guarded, "IDLE_S", 0.2)

    async def view(request: web.Request) -> web.Response:
        return web.Response(text="figures")

    app = web.Application(middlewares=[guard(names("127.0.0.1", ["Page.example"]), ADDED)])
    app.router.add_get("/", view)
    serving = runner(app)
    await serving.setup()
    site = web.TCPSite(serving, "127.0.0.1", 0)
    await site.start()
    yield serving.addresses[0][1]
    await serving.cleanup()


async def answer(port: int, host: str, path: str = "/") -> tuple[int, str, dict[str, str]]:
    """Ask under a name; returns code, text and headers."""
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host}) as got:
        return got.status, await got.text(), dict(got.headers)


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:6066", True),
        ("localhost:6066", True),
        ("LOCALHOST", True),
        ("[::1]:6066", True),
        ("10.1.2.3", True),
        ("page.example", True),
        ("page.example.:80", True),
        ("evil.example:6066", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (None, False),
    ],
)
def test_a_host_is_known_by_its_addresses_and_names(host: str | None, *, ours: bool) -> None:
    """A name that somebody else owns can be pointed at this address; an address cannot."""
    assert is_ours(host, names("0.0.0.0", ["Page.example"])) is ours


async def test_another_hosts_name_is_refused_with_what_to_do(port: int) -> None:
    """Its page gets nothing to read."""
    assert (await answer(port, f"127.0.0.1:{port}"))[:2] == (200, "figures")
    code, text, _ = await answer(port, "evil.example")
    assert code == 421
    assert "control.names" in text
    assert "figures" not in text


@pytest.mark.parametrize(("host", "path"), [("localhost", "/"), ("localhost", "/none"), ("evil.example", "/")])
async def test_every_answer_forbids_frames_guesses_and_foreign_scripts(port: int, host: str, path: str) -> None:
    """Refusals and pages that are not there, too."""
    found = (await answer(port, host, path))[2]
    assert {name: found[name] for name in ADDED} == ADDED
    assert "frame-ancestors 'none'" in found["Content-Security-Policy"]


def test_the_page_may_run_its_own_script_and_style_alone() -> None:
    """By their digests; nothing inline besides."""
    policy = ADDED["Content-Security-Policy"]
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
    page = PAGE.read_text(encoding="utf-8")
    assert " style=" not in page
    assert "onclick=" not in page.replace(".onclick =", "")


async def test_half_a_request_is_not_waited_for_for_ever(port: int) -> None:
    """The server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
