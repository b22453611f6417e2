"""`elb`: the requests that a load balancer counted in two weeks, played in four minutes.

Numenta's anomaly benchmark has them, five minutes a count (NAB, `elb_request_count_8c0756`, MIT). Each count becomes so
many queries, evenly over its five minutes; time is divided by 5,040. So each five minutes take 60 ms here: the busiest
of them asks 11,000 queries a second, the quietest hardly any. Each query gets feedback an hour later in the trace's
time. No id may be lost or answered twice, and at the end nothing may be left to read.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from load.figures import RIGHT, SHOWN, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.data import DATA
from load.harness.driving import Driver
from load.harness.probes import await_learnt
from load.harness.system import Deployment
from load.research.traces.playing import ANSWERS, answers, made, played
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "elb"
FILE = DATA / "traces" / "nab" / "elb_request_count_8c0756.csv"
MAPPING = {
    "application": "web",
    "time": {"column": "timestamp"},
    "input": {"value": [1.0]},
    "count": {"column": "value"},
    "over": {"value": 300},
    "label": {"value": 0},
    "delay": {"value": 3_600},
}
SPEED = 5_040.0
SHORT_S = 2 * 86_400.0  # of the trace: half a minute here
SLO_MS = 30_000.0  # what counts is that each query is answered, however long the queue is after a burst
CAUGHT_UP_S = 60.0
FIGURES = Figures(
    ANSWERS,
    RIGHT("feedback"),
    SHOWN("feedback_unsent"),
    Kind("s", Better.LOWER, 1.0, 5.0)("lag_zero_after_s", must=at_most(CAUGHT_UP_S)),
)


async def run(stage: Stage) -> Result:
    """Play the counts onto one model, and wait until all that came of them has been read."""
    trace = made(stage, FILE, MAPPING)
    package = stage.folder / "nothing"
    package_function("load.models.functions:nothing", package, "nothing", "1", np.ones((2, 1), np.float32))
    application = Application("web", ("nothing",), "exp3", slo_ms=SLO_MS, default_output=-1)
    deployment = Deployment(topics.new_prefix(NAME), (application,), {"nothing": package})
    async with stage.launch(deployment) as system:
        await Driver(stage, deployment.prefix, system).greet("web", Tensor.of(np.ones(1, np.float32)))
        score = await played(stage, deployment.prefix, trace, SPEED, SHORT_S if stage.short else None)
        ended_s = time.monotonic()
        await asyncio.to_thread(await_learnt, stage, deployment.prefix, score.feedback, CAUGHT_UP_S)
        caught_up_s = time.monotonic() - ended_s
    topics.delete(stage.bootstrap, deployment.prefix)
    return Result(
        NAME,
        figures={
            **answers(score),
            "feedback": float(score.feedback),
            "feedback_unsent": float(score.without_answer),
            "lag_zero_after_s": caught_up_s,
        },
        parameters={"speed": SPEED, "slo_ms": SLO_MS, "form": stage.form},
        notes=(f"default outputs: {dict(score.defaults) or 'none'}",),
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "two weeks of a load balancer's counts in four minutes: no id lost or doubled, lag back to 0",
    short=True,
)
