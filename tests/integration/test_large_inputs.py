"""Inputs of the size of an image through the whole loop: as they are, up to the setting; beyond it by their address."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pytest
import pytest_asyncio

from deploy.config.settings import Settings
from deploy.local.admin import admin_client
from deploy.state import desired
from deploy.state import topics as created_topics
from schemas import topics
from schemas.errors import OversizedError
from schemas.records import Observations, Status
from schemas.sizes import ROOM_BYTES
from streams.client import Client
from streams.runtime.kafka import admin
from tests.deployments import PATIENT_MS, Deployed, deployed
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By the bound (KiB): 602,112 bytes, as networks trained on ImageNet take them; and nearly the most that may be set.
SHAPES = {1024: (3, 224, 224), 8192: (3, 835, 835)}
APPLICATIONS = {"images": {"models": ["corner"], "policy": "single", "slo_ms": PATIENT_MS, "default_output": -1}}


def image(there: Deployed, label: int) -> np.ndarray:
    """Return an image that fits the deployment, whose first number is its label."""
    found = np.zeros(SHAPES[there.settings.max_input_kib], np.float32)
    found[0, 0, 0] = label
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where packages and images lie."""
    return tmp_path_factory.mktemp("large")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[("each", 1024), ("shared", 8192)])
async def there(
    kafka: Broker, redis_server: RedisServer, folder: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Deployed]:
    """Serve images, with a process for each role, and with as few as there may be."""
    processes, kib = request.param
    prefix, place = f"large-{uuid.uuid4().hex[:8]}", folder / processes
    sample = np.zeros((1, *SHAPES[kib]), np.float32)
    package_function("tests.toys:corner", place / "corner", "corner", "1", sample, by_reference=True)
    (folder / "images").mkdir(exist_ok=True)
    more = {
        "max_input_kib": kib,
        "processes": processes,
        "worker": {"references": [f"file:{folder}/images/"]},
    }
    models = {"corner": place / "corner"}
    async with deployed(kafka, redis_server.url, prefix, place, models, APPLICATIONS, **more) as deployment:
        yield deployment


async def test_an_image_goes_through_the_whole_loop(there: Deployed) -> None:
    """It is answered by its model, and what its label teaches is learnt."""
    for label in range(8):
        prediction = await there.client.predict("images", image(there, label))
        assert (prediction.status, prediction.answer) == (Status.COMPLETE, label), prediction
        await there.client.feedback(prediction, label=label)
    seen = there.watch.records[topics.OBSERVATIONS]
    decoded = lambda: sum(len(one.items) for one in there.watch.decoded(Observations, topics.OBSERVATIONS))  # noqa: E731
    await there.watch.until(lambda: seen and decoded() == 8, "8 observations")
    assert there.watch.dead(topics.QUERIES) == []


async def test_a_client_of_the_usual_bound_refuses_it_and_says_what_to_set(there: Deployed) -> None:
    """Nothing is sent; so it is with one of more than the deployment's own bound."""
    async with Client(there.settings.kafka.bootstrap, there.settings.prefix) as client:
        with pytest.raises(OversizedError, match=r"over 524288 \(max_input_kib: 512\).*Client\(max_input_kib=...\)"):
            await client.predict("images", image(there, 1))
    with pytest.raises(OversizedError, match=f"max_input_kib: {there.settings.max_input_kib}"):
        await there.client.predict("images", np.zeros(there.codec.max_bytes // 4, np.float32))


async def test_an_address_is_read_by_the_worker(there: Deployed, folder: Path) -> None:
    """The file is what numpy has saved."""
    np.save(folder / "images/7.npy", image(there, 7))
    prediction = await there.client.predict("images", f"file:{folder}/images/7.npy")
    assert (prediction.status, prediction.answer) == (Status.COMPLETE, 7)


async def test_what_lies_elsewhere_is_not_read_and_the_answer_says_so(there: Deployed, folder: Path) -> None:
    """A missing object and one outside of the allowed place are the default, each with its cause."""
    np.save(folder / "secret.npy", image(there, 7))
    for address, why in (
        ("images/none.npy", "No such file"),
        ("images/../secret.npy", ".."),
        ("secret.npy", "outside"),
    ):
        prediction = await there.client.predict("images", f"file:{folder}/{address}")
        assert (prediction.status, prediction.answer, prediction.reason) == (Status.DEFAULT, -1, "invalid_input")
        assert why in str(prediction), prediction


async def test_topics_that_were_made_before_are_a_fault_with_a_command_that_mends_it(kafka: Broker) -> None:
    """A deployment that raises its bound is told, before a role starts."""
    prefix = f"raised-{uuid.uuid4().hex[:8]}"
    before = Settings.model_validate({"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}})
    after = before.model_copy(update={"max_input_kib": 4096})
    created_topics.create(before, desired.build(before, {"m": None}))
    wanted = desired.build(after, {"m": None})
    faults = [finding for finding in created_topics.check(after, wanted) if finding.fault]
    assert {finding.aspect for finding in faults} == {"max.message.bytes"}
    limit = str((4 << 20) + ROOM_BYTES)
    assert all(f"--add-config max.message.bytes={limit}" in finding.message for finding in faults)
    for name in [f"{prefix}.{name}" for finding in faults for name in finding.topics]:
        admin.configure(admin_client(kafka.bootstrap), name, {"max.message.bytes": limit})
    assert not [finding for finding in created_topics.check(after, wanted) if finding.fault]
