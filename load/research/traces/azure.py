"""`azure`: a production trace of requests, played twenty times as fast, with 20 ms for an answer.

Microsoft published when 19,366 requests came to a service of theirs within an hour (Azure LLM inference trace 2023,
conversations, CC-BY-4.0). Its stamps are divided by 20 and nothing is resampled. The model takes 5 ms a batch and
0.1 ms a row. A default output is a miss, as an answer is that comes after 20 ms: counted where the client sees it, from
the time at which the query was meant to be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.figures import WITHIN_SLO, Figures
from load.harness import topics
from load.harness.data import DATA
from load.harness.driving import Driver
from load.harness.system import Deployment
from load.research.traces.playing import ANSWERS, answers, made, played
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "azure"
FILE = DATA / "traces" / "AzureLLMInferenceTrace_conv.csv"
MAPPING = {"application": "timed", "time": {"column": "TIMESTAMP"}, "input": {"value": [1.0]}}
SPEED = 20.0
SLO_MS = 20.0
SHORT_S = 600.0  # of the trace: half a minute here
FIGURES = Figures(WITHIN_SLO("share_within_slo"), ANSWERS)


async def run(stage: Stage) -> Result:
    """Play the trace onto one model."""
    trace = made(stage, FILE, MAPPING)
    package = stage.folder / "timed"
    package_function("load.models.functions:timed", package, "timed", "1", np.ones((2, 1), np.float32))
    application = Application("timed", ("timed",), "single", slo_ms=SLO_MS, default_output=-1)
    deployment = Deployment(topics.new_prefix(NAME), (application,), {"timed": package})
    async with stage.launch(deployment) as system:
        await Driver(stage, deployment.prefix, system).greet("timed", Tensor.of(np.ones(1, np.float32)))
        score = await played(
            stage, deployment.prefix, trace, SPEED, SHORT_S if stage.short else None, int(SLO_MS * 1_000)
        )
    topics.delete(stage.bootstrap, deployment.prefix)
    return Result(
        NAME,
        figures={"share_within_slo": score.in_time / max(1, score.sent), **answers(score)},
        parameters={"speed": SPEED, "slo_ms": SLO_MS, "form": stage.form},
        notes=(f"default outputs: {dict(score.defaults) or 'none'}",),
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a production trace twenty times as fast, 20 ms for an answer: how many come in time",
    short=True,
)
