"""A headless Chromium for tests of pages, asked over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENT_S = 60.0


class Tab:
    """A page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []  # of scripts, and of what the browser would not load

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENT_S):
            while True:
                told: dict[str, Any] = await self._socket.receive_json()
                if told.get("id") == number:
                    assert "error" not in told, told["error"]
                    result: dict[str, Any] = told["result"]
                    return result
                self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(told["params"]["exceptionDetails"].get("exception", told["params"])))
        elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.complaints.append(f"{told['params']['entry']['text']} {told['params']['entry'].get('url', '')}")

    async def resize(self, width: int, height: int = 900) -> None:
        """Show the page as wide as that."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def open(self, address: str) -> None:
        """Go to an address."""
        await self.call("Page.navigate", url=address)

    async def js(self, script: str) -> Any:
        """Return what an expression is, promises awaited."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true; return what it is then."""
        found = None
        async with asyncio.timeout(PATIENT_S):
            while not found:
                with suppress(AssertionError):
                    found = await self.js(script)
                await asyncio.sleep(0.05)
        return found

    async def press(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG."""
        found = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))  # noqa: ASYNC240 - a test's own loop


async def _port(file: Path) -> str:
    """Wait until the browser has said where it listens."""
    while not (said := file.read_text() if file.is_file() else ""):  # noqa: ASYNC110, ASYNC240 - nobody tells
        await asyncio.sleep(0.05)
    return said.splitlines()[0]


@asynccontextmanager
async def browser(folder: Path, *, dark: bool = False) -> AsyncIterator[Tab]:
    """Run Chromium with one tab; its profile is in the folder."""
    assert CHROMIUM is not None
    log = (folder / "chromium.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'profile'}", "about:blank", stdout=log, stderr=log,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENT_S):
            port = await _port(folder / "profile" / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                (tab,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=64 << 20) as socket:
                found = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await found.call(f"{domain}.enable")
                features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
                await found.call("Emulation.setEmulatedMedia", features=features)
                yield found
    finally:
        process.terminate()
        await process.wait()
        log.close()
