"""BentoML's adaptive batching behind the bridge, asked over HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import bentoml
import numpy as np

from load.research.peers.bridge import bridge
from load.research.peers.task import Task, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS = int(os.environ.get("PEER_ROWS", "256"))
_LATENCY_MS = int(os.environ.get("PEER_LATENCY_MS", "1000"))
_WAIT_S = 0.1
_SHED = 503
_RETRY_S = 0.005


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, metrics={"enabled": False})
class Model:
    """The estimator, served."""

    def __init__(self) -> None:
        self._work = Work(os.environ["PEER_MODEL"])

    @bentoml.api(batchable=True, max_batch_size=_ROWS, max_latency_ms=_LATENCY_MS)  # type: ignore[untyped-decorator]
    def predict(self, rows: np.ndarray) -> np.ndarray:  # it reads the plain annotation
        """Return the labels (n,) of rows (n, features)."""
        return np.asarray(self._work.predict(np.asarray(rows)))


async def main(task: Task) -> None:
    """Start the server as a child, wait for it, pass queries on until terminated."""
    setting = dict(task.setting)
    port = _free_port()
    group_rows = setting.pop("group_rows")
    variables = {
        **os.environ,
        "PEER_MODEL": task.model,
        **{f"PEER_{key.upper()}": str(setting[key]) for key in setting},
    }
    command = ("-m", "bentoml", "serve", "load.research.peers.bentoml:Model", "--port", str(port))
    await asyncio.create_subprocess_exec(sys.executable, *command, env=variables, cwd=task.folder)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=aiohttp.TCPConnector(limit=0)) as client:
        await _ready(client)

        async def ask(rows: NDArray[np.generic]) -> Any:
            """It sheds what it cannot answer within its objective; at least once means to ask again."""
            while True:
                async with client.post("/predict", json={"rows": rows.tolist()}) as response:
                    if response.status != _SHED:
                        response.raise_for_status()
                        return await response.json()
                await asyncio.sleep(_RETRY_S)

        await bridge(task, ask, group_rows)


async def _ready(client: aiohttp.ClientSession) -> None:
    while True:
        if await _is_ready(client):
            return
        await asyncio.sleep(_WAIT_S)


async def _is_ready(client: aiohttp.ClientSession) -> bool:
    try:
        async with client.get("/readyz") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    asyncio.run(main(Task.from_arguments()))
