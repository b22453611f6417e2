"""Others write orders into a topic of theirs, and what was true of them: late, twice, empty, or no JSON at all."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import TYPE_CHECKING, Any

from load.research.seeds.clients import Sender, in_bursts
from load.research.seeds.mapped import NEW, ORDERS, TRUTHS
from load.research.seeds.models import truth
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.seeds.mapped import Mapped
    from load.research.seeds.plan import Burst, Plan
    from streams.testing.connections import Process

_USERS = 5
# What an order is, and how often (%).
_KINDS = (("usual", "paid", "empty", "garbage", "numberless", "null", "copied"), (80, 4, 2, 2, 3, 3, 6))
_TOLD = (("usual", "never", "late", "doubled", "undecided", "garbage", "nobody's"), (60, 15, 5, 8, 5, 3, 4))


class Others:
    """Write orders, and what was true of them, as a shop does that knows nothing of Skysail."""

    def __init__(self, plan: Plan, mapped: Mapped, process: Process) -> None:
        self._plan = plan
        self._mapped = mapped
        self._random = Random(f"orders {plan.seed}")  # noqa: S311
        self._process = process
        self._sender = Sender(process)
        self._count = 0

    async def run(self) -> None:
        """Write all that is planned; returns when everything was acknowledged."""
        await in_bursts(self._plan.bursts, self._burst)

    async def _burst(self, burst: Burst, tasks: asyncio.TaskGroup) -> None:
        running = asyncio.get_running_loop()
        until_s = running.time() + burst.for_s
        while running.time() < until_s:
            self._count += 1
            tasks.create_task(self._order(self._count))
            await asyncio.sleep(self._random.expovariate(self._mapped.rate * burst.rate * burst.volley))

    async def _order(self, number: int) -> None:
        random = Random(f"order {number} {self._plan.seed}")  # noqa: S311
        kind, told = random.choices(*_KINDS)[0], random.choices(*_TOLD)[0]
        order_id, user = f"o{number}", f"u{random.randrange(_USERS)}"
        key = None if random.random() < 0.2 else order_id.encode()
        value = _order_value(kind, {"id": order_id, "user": user, "number": number, "state": NEW})
        await self._write(ORDERS, key, value, random)
        if kind == "copied":
            await asyncio.sleep(random.expovariate(0.2))
            await self._write(ORDERS, key, value, random)
        window_s = self._mapped.application.window_s
        await asyncio.sleep(
            random.uniform(1.0, 2.5) * window_s if told == "late" else random.uniform(0.0, 0.95) * window_s
        )
        if told == "nobody's":
            order_id = f"n{number}"
        for value in _truths(told, {"id": order_id, "user": user}, number):
            await self._write(TRUTHS, order_id.encode(), value, random)

    async def _write(self, topic: str, key: bytes | None, value: bytes | None, random: Random) -> None:
        count = self._mapped.partitions[topic]
        place = random.randrange(count) if key is None else partition_of(key, count)
        await self._sender.write(topic, place, key, value)


def _order_value(kind: str, order: dict[str, Any]) -> bytes | None:
    match kind:
        case "empty":
            return None
        case "garbage":
            return b"%d is no order" % order["number"]
        case "paid":
            order["state"] = "paid"
        case "numberless":
            del order["number"]
        case "null":
            order["number"] = None
    return json.dumps(order).encode()


def _truths(told: str, order: Mapping[str, Any], number: int) -> list[bytes]:
    """Return what is told of an order, in order."""
    right: dict[str, Any] = {"order": order, "label": truth(number)}
    match told:
        case "never":
            return []
        case "doubled":
            return [json.dumps(right).encode(), json.dumps({**right, "label": truth(number + 1)}).encode()]
        case "undecided":
            return [json.dumps({**right, "label": None}).encode()]
        case "garbage":
            return [b"\xff", json.dumps(right).encode()]
    return [json.dumps(right).encode()]
