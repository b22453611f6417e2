"""Does to the running deployment what an operator would: `skysail model add --share`, and later `skysail model use`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deploy.errors import DeployError
from deploy.state import desired

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.demo.stage import Stage
    from deploy.demo.trial import Trial
    from schemas.codec import Codec


async def promote(trial: Trial, stage: Stage, codec: Codec, start_s: float, say: Callable[[str], None]) -> None:
    """Give the new version its share when the trial begins, and all queries when it ends.

    Args:
        trial: what is tried, and when.
        stage: the deployment, and the package of the new version.
        codec: of the deployment's records.
        start_s: how long it is until the load starts.
        say: is told of each step.
    """
    loop = asyncio.get_running_loop()
    start = loop.time() + start_s
    name, version = trial.model, trial.version
    try:
        await asyncio.sleep(start + trial.begin_s - loop.time())
        await asyncio.to_thread(desired.add, stage.settings, codec, stage.candidate, _no_topics, trial.share)
        say(f"{trial.begin_s:5.1f} s  {name} {version}, trained on more rows, answers {trial.share:.0%} for {name}")
        await asyncio.sleep(start + trial.end_s - loop.time())
        await asyncio.to_thread(desired.use, stage.settings, codec, name, version)
        say(f"{trial.end_s:5.1f} s  {name} {version} serves from now on")
    except DeployError as error:
        say(f"{name} {version} is not tried: {error}")


def _no_topics(*_: object) -> None:
    """A further version of a model needs no topic of its own."""
