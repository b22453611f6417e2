"""MLServer's HTTP server with one scikit-learn model, as its documentation has it, in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import joblib

from load.errors import PeerFailedError
from load.harness.http import free_port
from load.research.peers import environments
from load.research.peers.running import variables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from load.models.training import Estimator

# By name: as it comes; inference in the server's own process; that with its batching, as `load run peers` found best.
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "defaults": {},
    "one_process": {"parallel_workers": 0},
    "batching": {"parallel_workers": 0, "max_batch_size": 64, "max_batch_time": 0.002},
}
_SERVER: Final = ("parallel_workers",)  # the other settings are the model's
_START_S: Final = 90.0
_STOP_S: Final = 10.0
_LOG_BYTES: Final = 600


@asynccontextmanager
async def serving(folder: Path, name: str, model: Estimator, setting: Mapping[str, Any]) -> AsyncIterator[int]:
    """Serve a model; yields the port once it is ready.

    Raises:
        PeerUnavailableError: it cannot be installed here.
        PeerFailedError: it ended, or is not ready in its time.
    """
    python = await asyncio.to_thread(environments.ensure, "mlserver", lambda _: None)
    port = free_port()
    _write(folder, name, model, port, setting)
    command = str(python.with_name("mlserver")), "start", str(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables(folder / "path"), stdout=log, stderr=log)  # noqa: ASYNC220, S603
    try:
        await _ready(process, folder, port)
        yield port
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _write(folder: Path, name: str, model: Estimator, port: int, setting: Mapping[str, Any]) -> None:
    folder.mkdir()
    joblib.dump(model, folder / "model.joblib")
    quiet = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}
    (folder / "logging.json").write_text(json.dumps(quiet))
    ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    own = {key: value for key, value in setting.items() if key in _SERVER}
    server = {"debug": False, **ports, "logging_settings": str(folder / "logging.json"), **own}
    (folder / "settings.json").write_text(json.dumps(server))
    described = {
        "name": name,
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": str(folder / "model.joblib"), "version": "1"},
        **{key: value for key, value in setting.items() if key not in _SERVER},
    }
    (folder / "model-settings.json").write_text(json.dumps(described))


async def _ready(process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    """Return once it answers that it is ready."""
    asked = b"GET /v2/health/ready HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(_START_S):
            while process.poll() is None:
                if await _status(port, asked) == b"200":
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass
    said = (folder / "log").read_text(errors="replace")[-_LOG_BYTES:]
    raise PeerFailedError(f"MLServer is not ready within {_START_S:g} s: {said}")


async def _status(port: int, request: bytes) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return b""
    try:
        writer.write(request)
        return (await reader.read())[9:12]
    except ConnectionError:
        return b""
    finally:
        writer.close()
