"""Who may read the control page over HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession

from streams.control.web.files import FOLDER
from streams.control.web.host_guard import GUARDING
from streams.runtime.process.host_names import is_ours, names
from tests import pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADDED = {name.decode().title(): value.decode() for name, value in GUARDING}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Serve the page; half a request is waited for a fifth of a second."""
    application = pages.page(pages.empty_state(0))
    async with pages.served(application, within_s=0.2) as server:
        yield server.port


async def answer(
    port: int, host: str, path: str = "/api/status", method: str = "GET"
) -> tuple[int, str, dict[str, str]]:
    """Ask under a name; returns code, text and headers."""
    address, headers = f"http://127.0.0.1:{port}{path}", {"Host": host}
    async with ClientSession() as session, session.request(method, address, headers=headers) as got:
        return got.status, await got.text(), {name.title(): value for name, value in got.headers.items()}


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
    code, text, _ = await answer(port, f"127.0.0.1:{port}")
    assert code == 200
    assert "processes" in text
    code, text, _ = await answer(port, "evil.example")
    assert code == 421
    assert "control.names" in text
    assert "processes" not in text


@pytest.mark.parametrize(
    ("host", "path", "method"),
    [("localhost", "/", "GET"), ("localhost", "/none", "GET"), ("evil.example", "/", "GET"), ("localhost", "/", "PUT")],
)
async def test_every_answer_forbids_frames_guesses_and_foreign_scripts(
    port: int, host: str, path: str, method: str
) -> None:
    """Refusals and pages that are not there, too."""
    found = (await answer(port, host, path, method))[2]
    assert {name: found[name] for name in ADDED} == ADDED
    assert "frame-ancestors 'none'" in found["Content-Security-Policy"]


def test_the_page_may_run_its_own_files_alone() -> None:
    """Scripts and styles come from its own host; nothing inline."""
    policy = ADDED["Content-Security-Policy"]
    assert "script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    assert " style=" not in page
    assert not re.search(r" on\w+=|<style|<script>", page)


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/", "/static/none.js", "/static/files.py"])
async def test_no_other_file_is_handed_out(port: int, path: str) -> None:
    """Names are looked up, not opened."""
    assert (await answer(port, "localhost", path))[0] == 404


async def test_every_file_that_the_page_names_is_there(port: int) -> None:
    """With the type that a browser insists on."""
    page = (await answer(port, "localhost", "/"))[1]
    for path in re.findall(r'(?:src|href)="(/[^"#]+)"', page):
        code, _, headers = await answer(port, "localhost", path)
        assert code == 200, path
        assert ("javascript" if path.endswith(".js") else "css") in headers["Content-Type"]


async def test_half_a_request_is_not_waited_for_for_ever(port: int) -> None:
    """The server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
