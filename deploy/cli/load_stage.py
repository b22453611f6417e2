"""What load scenarios run on: deployments of the roles as they are, and brokers beside the stage's own."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.local.cluster import KafkaCluster
from deploy.local.process import free_port
from deploy.local.redis import RedisServer
from deploy.state import metrics
from deploy.system.launch import System
from load.harness.system import Brokers
from schemas import topics as names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from load.harness.system import Deployment, Launch, RedisService
    from schemas.records import Application


@contextmanager
def open_brokers(
    count: int, *, tls: bool = False, through: Mapping[int, int] | None = None, bench: bool = True
) -> Iterator[Brokers]:
    """Start brokers for load scenarios: an implementation of `load.harness.system.OpenBrokers`."""
    with KafkaCluster(count, tls=tls, bench=bench, through=through) as cluster:
        kafka = cluster.secure if tls else {"bootstrap": cluster.bootstrap}
        nodes = {f"broker@{number}": node for number, node in enumerate(cluster.nodes, start=1)}
        yield Brokers(cluster.bootstrap, kafka, cluster.pids, cluster.logs, nodes)


@contextmanager
def open_redis(replica_of: RedisService | None = None) -> Iterator[RedisService]:
    """Start a Redis for load scenarios: an implementation of `load.harness.system.OpenRedis`."""
    with RedisServer(replica_of=replica_of.url if replica_of is not None else "") as server:
        yield server


def launcher(bootstrap: str, redis_url: str, folder: Path) -> Launch:
    """Return what starts deployments for load scenarios: an implementation of `load.harness.system.Launch`.

    Args:
        bootstrap: of the broker.
        redis_url: of Redis.
        folder: for logs; each deployment gets one of its own.
    """

    @asynccontextmanager
    async def launch(deployment: Deployment) -> AsyncIterator[System]:
        settings = settings_of(deployment, bootstrap, redis_url)
        place = folder / deployment.prefix
        several = {role: count for role, count in deployment.replicas.items() if role not in deployment.models}
        workers = {name: count for name, count in deployment.replicas.items() if name in deployment.models}
        async with System(settings, codec_for(settings), place, replicas=workers, several=several) as system:
            yield system

    return launch


def settings_of(deployment: Deployment, bootstrap: str, redis_url: str) -> Settings:
    """Return the settings of a deployment, as a file would have them."""
    return Settings.model_validate(
        {
            "prefix": deployment.prefix,
            "partitions": deployment.partitions,
            "kafka": {"bootstrap": bootstrap},
            "redis": {"url": redis_url},
            "roles": deployment.roles,
            "processes": deployment.processes,
            "models": dict(deployment.models),
            "applications": {app.name: _without_name(app) for app in deployment.applications},
            "control": {"port": free_port()},  # a deployment of the user's may have the usual one
            **deployment.settings,
        }
    )


def _without_name(application: Application) -> dict[str, object]:
    """Return an application as settings have it; its apprentice is set by a command alone."""
    told = {"name", "apprentice", "versions", "options", "stages", "mapping"}
    fields = {key: value for key, value in asdict(application).items() if key not in told}
    fields["sources"] = [source._asdict() for source in application.sources]
    fields["metrics"] = metrics.written(application.metrics)
    if application.options:
        fields["parameters"] = json.loads(application.options)
    fields["stages"] = {
        stage.name: {key: value for key, value in stage._asdict().items() if key != "name"}
        for stage in application.stages
    }
    asked = {name: f"{name}{names.MODEL_VERSION}{version}" for name, version in application.versions.items()}
    fields |= json.loads(application.mapping or "{}")
    return {**fields, "models": tuple(asked.get(name, name) for name in application.models)}
