"""Features that are looked up, on real services: from the topic, from Redis, and from a Redis that is not there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from redis import Redis

from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.system.launch import System
from schemas.codec import Codec
from schemas.records import Features, Prediction, Status
from streams.client import Client
from streams.runtime.stores.redis import feature_name
from workers.packages.packaging import package_linear

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Settings:
    """Settings of a deployment that chooses among three items: the first by the page, the others by the user."""
    weights = np.array([[5.0, 0.0, 0.0], [0.0, 5.0, -5.0]])
    package_linear(weights, np.zeros(3), tmp_path / "cold", "cold", "1")
    pages = {"name": "pages", "width": 1, "wait": 0.0}
    users = {"name": "users", "width": 1, "store": "redis"}
    return Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 2,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["selection", "joiner", "learner"],
            "processes": "shared",
            "selection": {"inline": ["cold"]},
            "models": {"cold": tmp_path / "cold"},
            "applications": {
                "ads": {
                    "models": ["cold"],
                    "policy": "two_speed",
                    "parameters": {"features": 2, "items": 3, "ridge": 1000},
                    "sources": [pages, users],
                    "loss": "given",
                    "slo_ms": 8_000,
                    "default_output": -1,
                }
            },
        }
    )


def looked_up(prediction: Prediction) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the features by which a query was decided, and the sources that were imputed."""
    assert prediction.decision is not None
    assert prediction.status is Status.COMPLETE
    return prediction.decision.features, prediction.imputed


async def asked(client: Client, user: str) -> Prediction:
    """Ask about a user, again if a role that starts has let the deadline pass."""
    end = time.monotonic() + 60
    while (found := await client.predict("ads", [], context=user, timeout_s=60)).status is not Status.COMPLETE:
        assert time.monotonic() < end, found
    return found


async def until_known(client: Client, user: str) -> Prediction:
    """Ask about a user until nothing is imputed any more: selection follows the topic on its own."""
    end = time.monotonic() + 60
    while (found := await asked(client, user)).imputed:
        assert time.monotonic() < end
    return found


async def test_features_come_from_the_topic_and_from_redis_and_their_means_outlive_a_kill(
    settings: Settings, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The model is asked about them; a user whom nobody knows has the means, before and after the role was killed."""
    with Redis.from_url(redis_server.url) as store:
        for user, value in (("ann", 2.0), ("bob", -2.0)):
            store.set(feature_name(settings.prefix, f"users/{user}"), Codec().encode(Features((value,))))
    async with (
        System(settings, codec_for(settings), tmp_path / "run") as system,
        Client(settings.kafka.bootstrap, settings.prefix) as client,
    ):
        await client.set_features("pages", {"ann": [0.5], "bob": [0.5]})
        ann, bob = await until_known(client, "ann"), await until_known(client, "bob")
        assert (looked_up(ann), looked_up(bob)) == (((0.5, 2.0), ()), ((0.5, -2.0), ()))
        assert (np.argmax(ann.first), np.argmax(bob.first)) == (1, 2)
        assert looked_up(await asked(client, "eve"))[1] == ("pages", "users")
        killed = system.kill("selection")
        assert await system.restarted("selection", killed) != killed
        again = looked_up(await asked(client, "eve"))
        assert again[1] == ("pages", "users")
        assert again[0][0] == pytest.approx(0.5)
        assert looked_up(await until_known(client, "ann"))[0] == (0.5, 2.0)


async def test_a_redis_that_is_not_there_costs_imputation_and_nothing_else(settings: Settings, tmp_path: Path) -> None:
    """Queries are answered by their deadline; after a second they do not even wait."""
    away = settings.selection.model_copy(update={"features_url": "redis://127.0.0.1:1/0"})
    given = Settings.model_validate(settings.model_dump() | {"selection": away.model_dump()})
    async with (
        System(given, codec_for(given), tmp_path / "run"),
        Client(given.kafka.bootstrap, given.prefix) as client,
    ):
        await client.set_features("pages", {"ann": [0.5]})
        first = await asked(client, "ann")
        later = await asked(client, "bob")
        assert looked_up(first)[1][-1] == looked_up(later)[1][-1] == "users"
        assert later.answered_us - later.received_us < 2_000_000, "it would wait 4 s"
