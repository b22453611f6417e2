"""Who asks the gateway, what they have heard, and whether that was right: their own answer, in time, or why not."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from load.research.seeds.askers import TIMEOUT_S, Served
from load.research.seeds.clients import in_bursts
from load.research.seeds.laws import Violation
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Prediction, Query, Tensor
from streams.gateway.protocol.values import HttpQuestion, RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load.research.seeds.askers import AskerPlan, Door
    from load.research.seeds.plan import Burst, Plan
    from schemas.codec import Codec
    from streams.testing.broker import FakeBroker

_CONTEXTS = 5
_MOST = 4  # rows of a request
_COPIED, _GONE = 0.05, 0.03  # of the requests: asked twice at a time, under one id; nobody waits for the answer
_BUSY = (409, 503)  # its id is under way; there is no room: that may be said at any time
_SAID = (400, *_BUSY, 504)
_BOUND_S = 0.1
_AFTER_S = 60.0  # a fault is felt for so long


class Heard(NamedTuple):
    """What became of a request.

    Attributes:
        name: of its one query; of several `NAME/0`, ...
        rows: the numbers that it asked about.
        door: that was asked; "" = there was none.
        asked_s: when.
        heard_s: when it had its outcome.
        outcome: its answers, or why there are none.
    """

    name: str
    rows: tuple[int, ...]
    door: str
    asked_s: float
    heard_s: float
    outcome: Served | BaseException


class Askers:
    """Ask the doors that are open, and note what they hear."""

    def __init__(self, plan: Plan, askers: AskerPlan, doors: dict[str, Door]) -> None:
        self._plan = plan
        self._rate = askers.rate
        self._doors = doors
        self._random = Random(f"askers {plan.seed}")  # noqa: S311
        self._count = 0
        self.heard: list[Heard] = []

    async def run(self) -> None:
        """Ask all that is planned; returns when everybody has heard."""
        await in_bursts(self._plan.bursts, self._burst)

    async def _burst(self, burst: Burst, tasks: asyncio.TaskGroup) -> None:
        running, random = asyncio.get_running_loop(), self._random
        until_s = running.time() + burst.for_s
        while running.time() < until_s:
            self._count += 1
            copies = 2 if random.random() < _COPIED else 1
            question, rows = self._question(self._count)
            for _ in range(copies):
                tasks.create_task(self._ask(question, f"h{rows[0]}", rows, is_gone=random.random() < _GONE))
            await asyncio.sleep(random.expovariate(self._rate * burst.rate * burst.volley))

    def _question(self, number: int) -> tuple[HttpQuestion, tuple[int, ...]]:
        random, application = self._random, self._random.choice(self._plan.asked)
        rows = tuple([number * _MOST + place for place in range(random.choice((1, 1, 1, _MOST)))])
        context = f"u{random.randrange(_CONTEXTS)}" if application.per_context else None
        inputs = tuple([Tensor.of(np.array([row], dtype=np.float32)) for row in rows])
        return HttpQuestion(application.name, inputs, context=context), rows

    async def _ask(self, question: HttpQuestion, name: str, rows: tuple[int, ...], *, is_gone: bool) -> None:
        running, doors = asyncio.get_running_loop(), sorted(self._doors)
        asked_s, random = running.time(), self._random
        if not doors:
            self.heard.append(Heard(name, rows, "", asked_s, asked_s, ConnectionRefusedError()))
            return
        door = random.choice(doors)
        request = self._doors[door].serve(question, name)
        if is_gone:
            await asyncio.wait([request], timeout=random.expovariate(10.0))
            request.cancel()
            return
        await asyncio.wait([request])
        fault = ConnectionResetError() if request.cancelled() else request.exception()
        self.heard.append(Heard(name, rows, door, asked_s, running.time(), fault or request.result()))


class HeardLaws:
    """Judges what askers have heard."""

    def __init__(self, plan: Plan, broker: FakeBroker, codec: Codec) -> None:
        self._plan = plan
        self._asked: dict[tuple[str, str], Query] = {}
        self._answered: dict[tuple[str, str], list[Prediction]] = {}
        for kind, topic in ((Query, topics.QUERIES), (Prediction, topics.PREDICTIONS)):
            for place in broker.places(topic):
                for record in broker.readable(place, 0):
                    self._take(codec, kind, record.value)

    def _take(self, codec: Codec, kind: type[Query | Prediction], value: bytes | None) -> None:
        try:
            one = codec.decode(kind, value)
        except DecodeError:
            return
        if isinstance(one, Query):
            self._asked[one.query_id, one.reply_token] = one
        else:
            self._answered.setdefault((one.query_id, one.reply_token), []).append(one)

    def violations(self, askers: Askers, doors: dict[str, Door]) -> list[Violation]:
        """Return what is wrong."""
        found = [Violation("heard", f"{one.name} {what}") for one in askers.heard for what in self._wrong(one)]
        held = {name: door.waiting for name, door in sorted(doors.items()) if door.waiting}
        return found + [Violation("memory", f"{name} still holds {count} requests") for name, count in held.items()]

    def _wrong(self, heard: Heard) -> Iterator[str]:
        took_s = heard.heard_s - heard.asked_s
        if took_s > TIMEOUT_S + _BOUND_S + self._halted_s(heard):
            yield f"has heard after {took_s:.1f} s"
        if isinstance(heard.outcome, Served):
            yield from self._misheard(heard, heard.outcome)
        else:
            yield from self._refused(heard, heard.outcome)

    def _misheard(self, heard: Heard, served: Served) -> Iterator[str]:
        """Hold answers against what was asked under their tokens, and what was answered."""
        names = [heard.name] if len(heard.rows) == 1 else [f"{heard.name}/{at}" for at in range(len(heard.rows))]
        if not len(names) == len(served.answers) == len(served.tokens):
            yield f"asked about {len(names)} rows, has {len(served.answers)} answers"
            return
        for name, row, token, answer in zip(names, heard.rows, served.tokens, served.answers, strict=True):
            query = self._asked.get((name, token))
            if query is None or not isinstance(query.input, Tensor) or query.input.numpy()[0] != row:
                yield f"asked about {row}, written is {query}"
            if answer not in self._answered.get((name, token), ()):
                yield f"has heard {answer}, which nobody has answered to {name} under {token}"

    def _refused(self, heard: Heard, fault: BaseException) -> Iterator[str]:
        """Hold a refusal against what has gone wrong meanwhile."""
        is_said = isinstance(fault, RequestRefusedError) and fault.status in _SAID
        if not is_said and not isinstance(fault, ConnectionError):
            yield f"was told nothing but {fault!r}"
        is_busy = isinstance(fault, RequestRefusedError) and fault.status in _BUSY
        if not is_busy and self._is_calm(heard):
            yield f"has no answer, nothing was wrong: {fault!r}"

    def _is_calm(self, heard: Heard) -> bool:
        """Tell whether nothing was wrong, nor shortly before."""
        return not self._plan.faulty and not any(
            fault.at_s <= heard.heard_s and fault.at_s + fault.for_s + _AFTER_S >= heard.asked_s
            for fault in self._plan.faults
        )

    def _halted_s(self, heard: Heard) -> float:
        """Return for how long the door may have stood still meanwhile."""
        halts = [fault for fault in self._plan.faults if fault.kind == "halt" and fault.target == heard.door]
        return sum(
            fault.for_s for fault in halts if fault.at_s <= heard.heard_s and fault.at_s + fault.for_s >= heard.asked_s
        )
