"""Processes, Redis and the broker are killed under load; afterwards nothing is lost and nothing counted twice.

Produce, act, validate: a load of queries with feedback flows through real roles; after a fifth of it something is
killed; it must serve again under load; and `validator.faults` judges what is left. Nothing is repaired by hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.process import free_port
from schemas import topics
from schemas.records import Observations
from streams.testing.validator import faults
from streams.topology import worker_role
from tests.deployments import ROLES, Deployed, Toy, deployed
from tests.fault.evidence import collected
from tests.fault.traffic import MODELS, RATE, SAMPLE, Traffic, applications

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    from deploy.local.apache import ApacheKafka
    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

PLANNED = 6 * RATE
PATIENCE_S = 60.0  # for each step
# Who has to commit everything that is on a topic before a run is over.
READERS = (
    ("selection", topics.QUERIES),
    ("selection", topics.MODEL_PREDICTIONS),
    ("joiner", topics.PREDICTIONS),
    ("joiner", topics.FEEDBACK),
    ("learner", topics.OBSERVATIONS),
    *((worker_role(model), topics.model_queries(model)) for model in MODELS),
)
# Where nobody on the way of an answer is killed, (almost) all are complete, also on a machine that is busy otherwise.
UNDISTURBED, UNDISTURBED_MS = 0.98, 20_000
DISTURBED_MS = 2_000


async def survive(
    there: Deployed, *disasters: Callable[[Traffic], Awaitable[object]], with_features: bool = False
) -> Traffic:
    """Run the load through disasters, wait after each until it is served again, at last until it has settled; judge."""
    traffic, until = Traffic(there, with_features=with_features), there.watch.until
    async with traffic.flowing():
        await until(lambda: len(traffic.told) > PLANNED / 5, "a fifth of the load", PATIENCE_S)
        for disaster in disasters:
            await disaster(traffic)
            since = traffic.sent
            await until(lambda since=since: traffic.serves(since), "a hundred complete answers in a row", PATIENCE_S)
        await until(lambda: traffic.sent >= PLANNED, "the rest of the load", PATIENCE_S)
        await traffic.enough()
        await until(traffic.is_told, "the truth of every answer", PATIENCE_S)
        assert await settled(there, traffic) == []
    for group, topic in READERS:
        await there.watch.all_committed(group, topic, PATIENCE_S)
    return traffic


async def settled(there: Deployed, traffic: Traffic) -> list[str]:
    """Return what is wrong: nothing as soon as nothing is, else what is left after a minute."""
    end = time.monotonic() + PATIENCE_S
    while (found := faults(await collected(there, traffic))) and time.monotonic() < end:  # noqa: ASYNC110 - see below
        await asyncio.sleep(0.5)  # other processes are watched: there is no event to wait for
    return found


def restarted(there: Deployed) -> set[str]:
    """Return which processes are not the first of their name."""
    return {child.name for child in there.system.status() if child.restarts}


async def kill(there: Deployed, *instances: str) -> None:
    """Kill processes at once; returns when what the supervisor has put in their place owns partitions."""
    killed_us = time.time_ns() // 1000
    pids = {instance: there.system.kill(instance) for instance in instances}
    for instance, pid in pids.items():
        await there.system.restarted(instance, pid)
    await there.watch.until(
        lambda: all(is_working(there, each, killed_us) for each in there.watch.reports() if is_of(there, each, pids)),
        f"{instances} at work",
        PATIENCE_S,
    )


def is_of(there: Deployed, instance: str, processes: Collection[str]) -> bool:
    """Tell whether an instance runs in one of these processes."""
    return there.system.process_of(instance) in {*map(there.system.process_of, processes)}


def is_working(there: Deployed, instance: str, since_us: int) -> bool:
    """Tell whether an instance has reported since then that it owns partitions."""
    report = there.watch.reports().get(instance)
    return report is not None and report.time_us > since_us and report.gauges.get("partitions", 0) > 0


@pytest.mark.parametrize("instance", ["selection", "worker.right"])
async def test_a_role_that_answers_may_be_killed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, instance: str
) -> None:
    """`kill -9` under load; what had to wait for the role is answered late or by default."""
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, applications(DISTURBED_MS)) as there:
        await survive(there, lambda _: kill(there, instance))
        assert restarted(there) == {instance}


@pytest.mark.parametrize("instance", ["joiner", "learner"])
async def test_a_role_that_learns_may_be_killed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, instance: str
) -> None:
    """`kill -9` under load; those who ask do not miss it."""
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, applications(UNDISTURBED_MS)) as there:
        traffic = await survive(there, lambda _: kill(there, instance))
        assert restarted(there) == {instance}
    assert traffic.share_complete() > UNDISTURBED


@pytest.mark.parametrize(("one", "each"), [("linucb", "linear_thompson"), ("linear_thompson", "linucb")])
async def test_regressions_are_the_fold_of_their_log_although_the_learner_was_killed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, one: str, each: str
) -> None:
    """Policies that go by features, for all users together and for each: the stored bits are those of the fold."""
    served = applications(UNDISTURBED_MS, one, each)
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served) as there:
        traffic = await survive(there, lambda _: kill(there, "learner"), with_features=True)
        assert restarted(there) == {"learner"}
        decisions = [seen.decision for seen in there.watch.decoded(Observations, topics.OBSERVATIONS)[-1].items]
    assert {decision.policy.partition("(")[0] for decision in decisions} <= {one, each}
    assert all(decision.features for decision in decisions)
    assert traffic.share_complete() > UNDISTURBED


async def test_weights_of_users_are_the_fold_of_their_log_although_all_roles_were_killed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Where the state answers, from what two models compute, the log has all that it learns from."""
    features = {name: Toy("tests.toys:halves", SAMPLE, "scores") for name in MODELS}
    served = applications(DISTURBED_MS, "ridge", "ridge", parameters={"features": 2}, loss="squared", span=1)
    async with deployed(kafka, redis_server.url, prefix, tmp_path, features, served) as there:
        everybody = set(there.system.pids)
        await survive(there, lambda _: kill(there, *everybody))
        assert restarted(there) == everybody
        log = [seen for each in there.watch.decoded(Observations, topics.OBSERVATIONS) for seen in each.items]
    answered = [seen.scores for seen in log[-100:] if seen.scores is not None and all(seen.scores)]
    assert answered  # a busy machine may have answered the last one by default
    assert {one.shape for scores in answered for one in scores if one} == {(2,)}


@pytest.mark.parametrize(("processes", "store"), [("each", "redis"), ("shared", "embedded")])
async def test_all_roles_may_be_killed_at_once(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, processes: str, store: str
) -> None:
    """As when their machine loses power: every process goes on from what is in Kafka and in the store."""
    kept = {"store": {"kind": store, "file": tmp_path / "states.db"}}
    served, shape = applications(DISTURBED_MS), {"processes": processes, **kept}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served, **shape) as there:
        everybody = set(there.system.pids)
        await survive(there, lambda _: kill(there, *everybody))
        assert restarted(there) == everybody


async def test_the_page_may_be_killed(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    """Nobody but the page's readers notices, and it comes back with everybody's figures."""
    served = applications(UNDISTURBED_MS)
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served, **with_page()) as there:

        async def kill_page(_: Traffic) -> None:
            await there.system.restarted("control", there.system.kill("control"))

        traffic = await survive(there, kill_page)
        assert restarted(there) == {"control"}
        await there.is_shown()
    assert traffic.share_complete() > UNDISTURBED


def with_page() -> dict[str, Any]:
    """Return the settings of a deployment that has a page, too."""
    return {"roles": (*ROLES, "control"), "control": {"port": free_port()}}


async def test_redis_may_go_away(kafka: Broker, own_redis: RedisServer, prefix: str, tmp_path: Path) -> None:
    """Restarted, then killed: answers go on with the states last seen, the learner from what Redis still has."""
    async with deployed(kafka, own_redis.url, prefix, tmp_path, MODELS, applications(UNDISTURBED_MS)) as there:

        async def restart(_: Traffic) -> None:
            await asyncio.to_thread(own_redis.restart)

        async def lose(traffic: Traffic) -> None:
            await asyncio.to_thread(own_redis.kill)
            since = traffic.sent
            await there.watch.until(lambda: traffic.serves(since), "answers without Redis")
            await asyncio.to_thread(own_redis.start)

        traffic = await survive(there, restart, lose)
        assert restarted(there) == set()
    assert traffic.share_complete() > UNDISTURBED


async def test_the_broker_may_go_away(
    own_kafka: ApacheKafka, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Restarted, then killed: everybody waits for it and goes on; what had to wait is answered late or by default."""
    served = applications(DISTURBED_MS)
    async with deployed(own_kafka, redis_server.url, prefix, tmp_path, MODELS, served, **with_page()) as there:

        async def restart(_: Traffic) -> None:
            await asyncio.to_thread(own_kafka.restart)

        async def lose(_: Traffic) -> None:
            await asyncio.to_thread(own_kafka.kill)
            await asyncio.to_thread(own_kafka.start)

        await survive(there, restart, lose)
        await there.is_shown()
        assert restarted(there) == set()
