"""Ray Serve with `serve.batch` behind the bridge, asked through a deployment handle (no HTTP)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray import serve

from load.research.peers.bridge import bridge
from load.research.peers.task import Task, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray


def deployment(task: Task, rows: int, wait_s: float) -> Any:
    """Return the application: one replica that gathers up to `rows` requests for up to `wait_s`."""

    @serve.deployment(num_replicas=1, max_ongoing_requests=4 * rows, ray_actor_options={"num_cpus": 1})
    class Model:
        """The estimator."""

        def __init__(self, path: str) -> None:
            self._work = Work(path)

        @serve.batch(max_batch_size=rows, batch_wait_timeout_s=wait_s)  # type: ignore[untyped-decorator]
        async def __call__(self, groups: list[NDArray[np.generic]]) -> list[list[int]]:
            ends = np.cumsum([len(group) for group in groups])[:-1]
            labels = np.asarray(self._work.predict(np.concatenate(groups)))
            return [part.tolist() for part in np.split(labels, ends)]

    return Model.bind(task.model)  # type: ignore[attr-defined]  # the decorator's


async def main(task: Task) -> None:
    """Run until terminated."""
    setting = dict(task.setting)
    group_rows = setting.pop("group_rows")
    ray.init(include_dashboard=False, logging_level="warning", log_to_driver=False, num_cpus=2)
    handle = serve.run(deployment(task, **setting), logging_config={"log_level": "ERROR", "enable_access_log": False})

    async def ask(rows: NDArray[np.generic]) -> list[int]:
        labels: list[int] = await handle.remote(rows)
        return labels

    await bridge(task, ask, group_rows)


if __name__ == "__main__":
    asyncio.run(main(Task.from_arguments()))
