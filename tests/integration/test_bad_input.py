"""Bad queries and bad bytes: each has its documented outcome, the partition moves on, the neighbours are answered.

One deployment serves the whole module, with one partition on the circle of data: whatever is bad stands in everybody's
way.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pytest
import pytest_asyncio

from schemas import topics
from schemas.codec import MAX_BYTES
from schemas.records import Feedback, Query, Status, Tensor
from tests.deployments import Deployed, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPLICATION = {"models": ["parity"], "policy": "single", "slo_ms": 2000, "default_output": -1}
TWO = Tensor.of(np.array([1, 1], np.float32))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployed]:
    """Serve the parity of two numbers."""
    models = {"parity": Toy("tests.toys:parity", np.zeros((2, 2), np.float32))}
    prefix, folder = f"bad-input-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("bad-input")
    async with deployed(
        kafka, redis_server.url, prefix, folder, models, {"sums": APPLICATION}, partitions=1
    ) as deployment:
        yield deployment


async def neighbours_are_served(there: Deployed) -> None:
    """Ask around the bad ones: every answer is right and in time."""
    rows = [np.array([number, 0], np.float32) for number in range(8)]
    found = await asyncio.gather(*(there.client.predict("sums", row) for row in rows))
    assert [(p.status, p.answer) for p in found] == [(Status.COMPLETE, number % 2) for number in range(8)]
    assert all(p.answered_us <= p.deadline_us for p in found)


def bad_values(there: Deployed, good: object) -> dict[str, list[bytes | None]]:
    """Return values that are no record of the kind of `good`, by the cause that their dead letters must have."""
    value, other = there.codec.encode(good), there.codec.encode(Feedback("f", 1) if type(good) is not Feedback else TWO)
    unknown = [b"\x00" + (424_242).to_bytes(4, "big") + value[10:], b"\xc3\x01" + b"\xff" * 8 + value[10:], other]
    return {
        "unknown_schema": [b"garbage", b"\xff" * 100, *unknown],
        "truncated": [value[:1], value[:7], value[:-1]],
        "trailing": [value + b"\x00"],
        "empty": [b"", None],
        "oversized": [value[:10] + b"\x00" * MAX_BYTES],
    }


async def test_bytes_that_are_no_query_are_dead_letters(there: Deployed) -> None:
    """Garbage, unknown schemas in both framings, truncated, oversized: key and bytes untouched, cause in the headers."""
    bad = bad_values(there, Query("q", "sums", TWO))
    sent = [(cause, value) for cause, values in bad.items() for value in values]
    there.put(topics.QUERIES, *[value for _, value in sent], key=b"\xff\xfe")
    await neighbours_are_served(there)
    await there.watch.until(lambda: len(there.watch.dead(topics.QUERIES)) >= len(sent))
    letters = there.watch.dead(topics.QUERIES)
    assert [(letter.cause, letter.value) for letter in letters] == [(cause, value or b"") for cause, value in sent]
    assert {letter.key for letter in letters} == {b"\xff\xfe"}
    await there.watch.all_committed("selection", topics.QUERIES)
