"""Load for a deployment while things are killed: an open loop of queries, and the truth for every answer.

Times are planned, not kept: what could not be sent while the broker was away is sent after it, under its planned time.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.records import Feedback, Prediction, Query, Status, Tensor
from streams.topology import partition_of
from tests.deployments import Toy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from numpy.typing import NDArray

    from tests.deployments import Deployed

RATE = 150
# One model is right but for the noise, the other one wrong but for it: losses are no zeros, weights move.
SAMPLE = np.ones((2, 2), dtype=np.float32)
MODELS = {"right": Toy("tests.toys:parity", SAMPLE), "wrong": Toy("tests.toys:contrary", SAMPLE)}
_USERS = 12  # a state each, spread over the partitions
_GARBAGE_EVERY = 50
_TICK_S = 0.01
_LOOK_S = 0.05
_CLEAN = 100  # answers in a row that show that a deployment serves again


class Traffic:
    """Asks and tells; what the broker has acknowledged is in `asked`, `garbage` and `told`.

    Args:
        there: the deployment that is asked.
        with_features: whether a query carries its row as features, too.

    Attributes:
        sent: number of planned sends that were acknowledged, garbage among them.
        first: status of the first answer to each query.
    """

    def __init__(self, there: Deployed, *, with_features: bool = False) -> None:
        self.sent = 0
        self.asked: set[str] = set()
        self.garbage: set[bytes] = set()
        self.told: dict[str, int] = {}
        self.first: dict[str, Status] = {}
        self._there = there
        self._with_features = with_features
        self._enough = asyncio.Event()
        self._asked = asyncio.Event()

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Ask until `enough()`, tell until the block ends; what fails in either fails the block."""
        async with asyncio.TaskGroup() as tasks:
            jobs = [tasks.create_task(self._ask()), tasks.create_task(self._tell())]
            yield
            for job in jobs:
                job.cancel()

    async def enough(self) -> None:
        """Ask no more; returns when everything that was asked is acknowledged."""
        self._enough.set()
        await self._asked.wait()

    def is_told(self) -> bool:
        """Whether the truth of everything that was asked has been told: a prediction without it waits for a window."""
        return self.asked <= self.told.keys()

    def serves(self, since: int) -> bool:
        """Whether a hundred answers in a row were complete, all asked for after the first `since` sends."""
        row = 0
        for number in range(since, self.sent):
            if not _is_garbage(number):
                row = row + 1 if self.first.get(_id(number)) is Status.COMPLETE else 0
            if row == _CLEAN:
                return True
        return False

    def share_complete(self) -> float:
        """Return which part of the answers was complete."""
        return sum(status is Status.COMPLETE for status in self.first.values()) / max(1, len(self.first))

    async def _ask(self) -> None:
        start, start_us = time.monotonic(), time.time_ns() // 1000
        while not self._enough.is_set():
            due = int((time.monotonic() - start) * RATE)
            await self._send(range(self.sent, due), start_us)
            self.sent = max(self.sent, due)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._enough.wait()
        self._asked.set()

    async def _send(self, numbers: range, start_us: int) -> None:
        queries = [_query(n, start_us + n * 1_000_000 // RATE) for n in numbers if not _is_garbage(n)]
        if self._with_features:
            queries = [query._replace(features=tuple(_row(int(query.query_id[1:])).tolist())) for query in queries]
        await self._there.client.send(queries)
        self.asked.update(query.query_id for query in queries)
        for value in [b"garbage %d" % number for number in numbers if _is_garbage(number)]:
            partition = partition_of(value, self._there.settings.partitions)
            await self._there.client._transport.send(topics.QUERIES, partition, [(value, value)])
            self.garbage.add(value)

    async def _tell(self) -> None:
        """Send the truth for every answer, once."""
        read = 0
        while True:
            records = self._there.watch.records[topics.PREDICTIONS]
            new = [self._there.codec.decode(Prediction, record.value) for record in records[read:]]
            read = len(records)
            fresh = {p.query_id: p for p in reversed(new) if p.query_id not in self.first}
            self.first |= {query_id: prediction.status for query_id, prediction in fresh.items()}
            truths = {query_id: _truth(int(query_id[1:])) for query_id in fresh}
            now_us = time.time_ns() // 1000
            await self._there.client.send_feedback(
                [
                    (Feedback(query_id, label, None, now_us), fresh[query_id].context)
                    for query_id, label in truths.items()
                ]
            )
            self.told |= truths
            await asyncio.sleep(_LOOK_S)


def applications(
    slo_ms: int, one: str = "exp3", each: str = "thompson", **more: object
) -> dict[str, dict[str, object]]:
    """Return one application with a state and one with a state for each user, both served by both models.

    Args:
        slo_ms: their objective.
        one: the policy of the first.
        each: that of the second.
        more: of both.
    """
    served = {"models": [*MODELS], "slo_ms": slo_ms, "default_output": -1, **more}
    return {
        "sums": {**served, "policy": one},
        "sums-of-users": {**served, "policy": each, "per_context": True},
    }


def _id(number: int) -> str:
    return f"q{number}"


def _is_garbage(number: int) -> bool:
    return number % _GARBAGE_EVERY == _GARBAGE_EVERY - 1


def _query(number: int, sent_us: int) -> Query:
    """Ask the two applications in turn."""
    turn, whose = divmod(number, 2)
    application, user = ("sums-of-users", f"user-{turn % _USERS}") if whose else ("sums", None)
    return Query(_id(number), application, Tensor.of(_row(number)), user, sent_us)


def _row(number: int) -> NDArray[np.float32]:
    return np.array([number // 2 % 4, 1], dtype=np.float32)


def _truth(number: int) -> int:
    """Return the parity of the row, in one of five cases the other one."""
    is_noise = number // 2 % 5 == 0
    return (int(_row(number).sum()) + is_noise) % 2
