"""An A/B test by people, as docs/people.md types it: on a running deployment, and then read from its log alone."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from math import sqrt
from typing import TYPE_CHECKING

import yaml

from deploy.config import configuration
from policies import assignment, draw
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Measurements, Observations, Prediction
from streams.topology import is_held_out
from streams.trace.reader import Trace
from tests.deployments import PATIENT_MS, UNTIL_S, Deployed, deployed
from tests.packages import package_constant
from tests.snippets import ROOT, Snippet, commands, snippets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from pathlib import Path
    from typing import Any

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

PEOPLE, VISITS = 360, 3
GROUPED = 240
AT_ONCE = 8  # people
BETTER = 0.4  # how much less version 2 costs
REFUNDED = {"1": 0.1, "2": 0.6}
ROW = [1.0, 0.0]
GROUPS = {
    "models": ["plain", "clever"],
    "policy": "context_tree",
    "parameters": {"features": 1},
    "loss": "given",
    "assign": "context",
}


def block(begin: str) -> Snippet:
    """Return the block of the page that begins so."""
    (found,) = [one for one in snippets() if one.page == "people.md" and one.text.startswith(begin)]
    return found


def applications() -> dict[str, Any]:
    """Return the application of the page, and one with groups; both wait for a busy machine."""
    shop = yaml.safe_load(block("models: {offers").text)["applications"]["shop"]
    return {name: {**its, "slo_ms": PATIENT_MS} for name, its in (("shop", shop), ("groups", GROUPS))}


async def skysail(folder: Path, words: Sequence[str], **environment: str) -> str:
    """Run a command in a folder that has settings; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.cli", *words),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, f"{words}: {errors.decode()}"
    return printed.decode()


def chance(who: str, number: int, use: str) -> float:
    """Return what decides what comes of a visit."""
    return draw.uniform(f"{who}-{number}", use)


async def coming(visit: Awaitable[None], doors: asyncio.Semaphore) -> None:
    """Visit when there is room: were all there at once, one version might answer most people before the other does."""
    async with doors:
        await visit


async def visit_shop(there: Deployed, who: str) -> None:
    """Ask some times, and tell what each answer cost and whether it was refunded."""
    for number in range(VISITS):
        offer = await there.client.predict("shop", ROW, context=who)
        version = offer.outputs[0].version
        rate = 0.5 + 0.4 * draw.uniform(who, "rate") - (BETTER if version == "2" else 0.0)
        await there.client.feedback(offer, loss=float(chance(who, number, "loss") < rate))
        await there.client.measure(offer, "refunds", float(chance(who, number, "refund") < REFUNDED[version]))


async def visit_groups(there: Deployed, who: str, feature: float) -> None:
    """Ask some times; the one model is good for one half of the people, the other for the other half."""
    for number in range(VISITS):
        answer = await there.client.predict("groups", ROW, context=who, features=[feature])
        is_good = (answer.outputs[0].model == "clever") == (feature > 0.0)
        await there.client.feedback(answer, loss=float(chance(who, number, "loss") < (0.1 if is_good else 0.9)))


async def loaded(there: Deployed, version: str) -> None:
    """Wait until a version answers who names it."""
    end = time.monotonic() + UNTIL_S
    while (await there.client.predict("shop", ROW, version=version)).reason == "unknown_version":
        assert time.monotonic() < end


def is_logged(there: Deployed) -> bool:
    """Tell whether all that was told is observed and measured."""
    observed, measured = set[str](), set[str]()
    for record in there.watch.records[topics.OBSERVATIONS]:
        several = there.codec.decode(Observations, record.value).items
        observed |= {seen.query_id for seen in several}
        if not several:
            measured |= {seen.query_id for seen in there.codec.decode(Measurements, record.value).items}
    return (len(observed), len(measured)) == ((PEOPLE + GROUPED) * VISITS, PEOPLE * VISITS)


async def tree(there: Deployed, folder: Path) -> list[dict[str, Any]]:
    """Return the groups, as soon as the learner has learnt all."""
    await there.watch.all_committed("learner", topics.OBSERVATIONS)
    return list(json.loads(await skysail(folder, ["app", "tree", "groups", "--json"]))["groups"])


def check_versions(found: dict[str, Any]) -> None:
    """The truth lies within the bounds, and what breaks its guardrail is known to."""
    evidence, (refunds,) = found["evidence"], found["metrics"]
    assert 0.0 < evidence["lower"] <= BETTER <= evidence["upper"]
    assert evidence["candidate_loss"] + BETTER / 2 < evidence["incumbent_loss"]
    assert (found["by_person"], found["both"], found["drawn_otherwise"]) == (True, 0, False)
    assert refunds["lower"] <= REFUNDED["1"] - REFUNDED["2"] <= refunds["upper"]
    assert refunds["verdict"] == "its guardrail is broken"


def check_shop(made: Sequence[Prediction]) -> None:
    """Each draw met one version, and who is held out the one that serves, which nothing else decides."""
    met, shop = defaultdict[tuple[str, str], set[str]](set), Application("shop", ("offers",), holdout=0.1)
    for one in made:
        assert one.context is not None
        assert one.decision is not None
        assert one.decision.propensities == (1.0,)
        is_out = assignment.is_held_out(shop, one.context)
        assert is_held_out(one.decision.state) is is_out
        met[one.context, "" if is_out else one.drawn] |= {output.version for output in one.outputs}
        assert not is_out or met[one.context, ""] == {"1"}
    assert len({who for who, _ in met}) == PEOPLE
    assert all(len(versions) == 1 for versions in met.values())


def check_groups(made: Sequence[Prediction]) -> None:
    """As many were asked as the logged propensities say: by person, whose draws are one."""
    beyond = defaultdict[str, float](float)
    for one in made:
        assert one.context is not None
        assert one.decision is not None
        clever = one.decision.arms.index("clever")
        beyond[one.context] += (clever in one.decision.chosen) - one.decision.propensities[clever]
    assert len(beyond) == GROUPED
    assert abs(sum(beyond.values())) < 4.0 * sqrt(sum(each * each for each in beyond.values()))


async def test_an_ab_test_in_five_commands(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Version 2 costs less, and breaks its guardrail: both are read, by person, without the deployment."""
    run, add, record, compare, holdout = commands(block("skysail run\n"))
    assert run == ["run"]
    doors = asyncio.Semaphore(AT_ONCE)
    models = {name: package_constant(tmp_path, 1, name) for name in ("offers", "plain", "clever")}
    (tmp_path / "models").mkdir()
    package_constant(tmp_path, 2, "offers").rename(tmp_path / "models" / "offers-2")
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, applications()) as there:
        configuration.write(there.settings, tmp_path / "skysail.yaml")
        await skysail(tmp_path, add)
        await loaded(there, "2")
        async with asyncio.TaskGroup() as visits:
            for number in range(PEOPLE):
                visits.create_task(coming(visit_shop(there, f"ann-{number}"), doors))
            for number in range(GROUPED):
                visits.create_task(coming(visit_groups(there, f"bob-{number}", (-1.0) ** number), doors))
        await there.watch.until(lambda: is_logged(there), "all is observed")
        groups = await tree(there, tmp_path)
        live = await skysail(tmp_path, compare[:-1]), await skysail(tmp_path, holdout[:-1])
        await skysail(tmp_path, record)
    assert [each["path"] for each in groups] == [[[0, False]], [[0, True]]]
    nowhere = {"SKYSAIL_KAFKA__BOOTSTRAP": "127.0.0.1:1"}
    assert [await skysail(tmp_path, words, **nowhere) for words in (compare, holdout)] == [*live]
    found = json.loads(await skysail(tmp_path, [*compare, "--json"], **nowhere))
    check_versions(found)
    back = await skysail(tmp_path, ["model", "compare", "offers@1", record[1], "--against", "2"], **nowhere)
    assert "its guardrail holds" in back
    whole = json.loads(await skysail(tmp_path, [*holdout, "--json"], **nowhere))
    assert whole["policy"] + whole["held_out"] == PEOPLE
    assert whole["evidence"]["lower"] <= BETTER / 2 <= whole["evidence"]["upper"]
    codec, trace = Codec(), Trace.open(tmp_path / record[1])
    made = [codec.decode(Prediction, each.value) for each in trace.records(topics.PREDICTIONS)]
    check_shop([one for one in made if one.application == "shop" and one.context is not None])
    check_groups([one for one in made if one.application == "groups"])
