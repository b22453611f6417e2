"""Candidates that are ids, on real services: films whose features lie in two stores, and items that a model names."""

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
    from collections.abc import Sequence
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

FILMS = {"alien": (1.0, -1.0), "brazil": (0.0, 0.0), "casablanca": (-1.0, 1.0)}
WAIT_S = 90


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Settings:
    """Settings of a deployment that ranks films for its users, and chooses among offers that a model names."""
    names = ("shoes", "hats", "gloves")
    package_linear(np.zeros((1, 3)), np.array([0.0, 5.0, 9.0]), tmp_path / "cold", "cold", "1", classes=names)
    shared = {"models": ["cold"], "slo_ms": 4000, "default_output": -1}
    in_redis = {"name": "mood", "width": 1, "key": "candidate", "store": "redis"}
    in_topic = {"name": "style", "width": 1, "key": "candidate", "wait": 0.0}
    ratings = {"policy": "ridge", "parameters": {"features": 2, "low": 1, "high": 5, "gamma": 0}, "loss": "squared"}
    offers = {"policy": "two_speed", "parameters": {"features": 0, "items": 3, "ridge": 1000}, "loss": "given"}
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
                "ratings": {**shared, **ratings, "span": 4, "per_context": True, "sources": [in_redis, in_topic]},
                "offers": {**shared, **offers},
            },
        }
    )


async def best_of(client: Client, application: str, ids: Sequence[str], **more: object) -> Prediction:
    """Ask for the best of some candidates, again if a role that starts has let the deadline pass."""
    end = time.monotonic() + WAIT_S
    while True:
        found = await client.predict(application, [0.0], candidates=ids, timeout_s=60, **more)  # type: ignore[arg-type]
        if found.status is Status.COMPLETE:
            return found
        assert time.monotonic() < end, found


async def test_films_are_ranked_by_features_of_two_stores_and_by_what_users_have_told(
    settings: Settings, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Ann is told of films by their ids, rates them, and gets what she likes; of a new film the average is expected."""
    with Redis.from_url(redis_server.url) as store:
        for film, (mood, _) in FILMS.items():
            store.set(feature_name(settings.prefix, f"mood/{film}"), Codec().encode(Features((mood,))))
    async with (
        System(settings, codec_for(settings), tmp_path / "run"),
        Client(settings.kafka.bootstrap, settings.prefix) as client,
    ):
        await client.set_features("style", {film: [style] for film, (_, style) in FILMS.items()})
        end = time.monotonic() + WAIT_S
        while (found := await best_of(client, "ratings", list(FILMS), context="ann")).imputed:
            assert time.monotonic() < end, found  # selection follows the topic on its own
        assert found.ranked is not None
        assert found.ranked.rows is not None
        assert [tuple(row) for row in found.ranked.rows.numpy().tolist()] == [*FILMS.values()]
        for film in FILMS:
            one = await best_of(client, "ratings", [film], context="ann")
            await client.feedback(one, label=5 if film == "casablanca" else 1)
        while (found := await best_of(client, "ratings", list(FILMS), context="ann", top=2)).best[0] != "casablanca":
            assert time.monotonic() < end, found
        new = await best_of(client, "ratings", ["alien", "unheard-of"], context="ann")
        assert new.ranked is not None
        assert (new.ranked.imputed, {*new.imputed}) == (("unheard-of",), {"mood", "style"})


async def test_of_some_items_of_a_model_the_best_is_named(settings: Settings, tmp_path: Path) -> None:
    """By the names that its package gives them; the best of all is not a candidate, and one is nobody's."""
    async with (
        System(settings, codec_for(settings), tmp_path / "run"),
        Client(settings.kafka.bootstrap, settings.prefix) as client,
    ):
        found = await best_of(client, "offers", ["shoes", "boats", "hats"], top=3)
        assert found.ranked is not None
        assert found.ranked.items == (0, -1, 1)
        assert found.first[1] == 0.0
        assert found.first[2] > 0.9
        assert {*found.best} == {"shoes", "hats"}
        await client.feedback(found, loss=0)
