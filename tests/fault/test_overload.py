"""A burst that a model cannot serve: what is refused is said to be, costs nobody anything, and teaches nothing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.records import Feedback, Observations, Outcome, Prediction, Query, Status, Tensor
from streams.testing.validator import faults
from tests.deployments import Toy, deployed
from tests.fault.evidence import collected
from tests.fault.traffic import Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

SAMPLE = np.ones((2, 2), np.float32)
# One takes 6 ms a row in batches of one: 50 rows in an objective of 300 ms, 333 in one of 2 s, which is long enough for
# the other one, which takes next to nothing, on a machine that does much else.
MODELS = {"slow": Toy("load.models.functions:slow", SAMPLE), "quick": Toy("tests.toys:parity", SAMPLE)}
APPLICATIONS = {
    "alone": {"models": ["slow"], "policy": "single", "slo_ms": 300, "default_output": -1},
    "pair": {"models": ["slow", "quick"], "policy": "exp4", "slo_ms": 2_000, "default_output": -1},
}
FIRST, BURST = 20, 600
ROW = Tensor.of(SAMPLE[0])
LABEL = 1  # both models say 0
LEARNT_S = 60.0


async def test_a_refused_model_teaches_nothing_and_the_states_are_the_fold_of_what_was_observed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Through all roles: refused alone = default, nothing decided; refused in a pair = the other one's answer."""
    more = {"selection": {"admission": True}, "worker": {"controller": "fixed", "parameters": {"rows": 1}}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, APPLICATIONS, **more) as there:
        traffic = Traffic(there)
        for _ in range(FIRST):  # one by one, from which selection learns what a row takes
            traffic.asked.add((await there.client.predict("alone", ROW)).query_id)
        answers = await _answers(there, traffic)
        await there.client.send_feedback((Feedback(name, LABEL), None) for name in answers)
        traffic.told.update(dict.fromkeys(answers, LABEL))
        end = time.monotonic() + LEARNT_S
        while (found := faults(await collected(there, traffic))) and time.monotonic() < end:  # noqa: ASYNC110 - of Redis
            await asyncio.sleep(0.1)
        assert found == []
        _are_told_as_they_are(there, answers)


async def _answers(there: Deployed, traffic: Traffic) -> dict[str, Prediction]:
    """Ask each application for more than the model can do, at once."""
    now_us = time.time_ns() // 1_000
    queries = [Query(f"{name}-{number}", name, ROW, None, now_us) for name in APPLICATIONS for number in range(BURST)]
    await there.client.send(queries)
    asked = {query.query_id for query in queries}
    traffic.asked |= asked

    def arrived() -> dict[str, Prediction]:
        seen = {each.query_id: each for each in there.watch.decoded(Prediction, topics.PREDICTIONS)}
        return {name: seen[name] for name in asked} if asked <= seen.keys() else {}

    return await there.watch.until(arrived, "not all were answered")


def _are_told_as_they_are(there: Deployed, answers: dict[str, Prediction]) -> None:
    """Hold answers and observations against each other."""
    log = there.watch.decoded(Observations, topics.OBSERVATIONS)
    losses = {each.query_id: each.losses for several in log for each in several.items}
    alone = [each for each in answers.values() if each.application == "alone" and each.reason == "overloaded"]
    assert alone
    assert {(each.status, each.answer, each.decision) for each in alone} == {(Status.DEFAULT, -1, None)}
    assert not losses.keys() & {each.query_id for each in alone}
    pair = [each for each in answers.values() if each.application == "pair"]
    refused = {each.query_id for each in pair if _outcome(each, "slow") is Outcome.OVERLOADED}
    assert refused
    assert {losses[name] for name in refused} == {(None, 1.0)}
    assert all(losses[each.query_id][0] is not None for each in pair if each.query_id not in refused)
    # On a busy machine the other one may be late, too: then the query's answer is the default, and it was told which.
    in_time = {name for name in refused if _outcome(answers[name], "quick") is Outcome.OK}
    assert in_time
    assert {name: answers[name].answer for name in refused} == {name: 0 if name in in_time else -1 for name in refused}


def _outcome(prediction: Prediction, model: str) -> Outcome:
    (found,) = (output.outcome for output in prediction.outputs if output.model == model)
    return found
