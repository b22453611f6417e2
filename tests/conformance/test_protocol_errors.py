"""Every request of a role is refused with every code that a broker has for it: once, and 20 times.

Many cases run at once, each on an embedded broker of its own that has the refusals ready when the role starts. What may
pass is got over; what only a person can change ends the role in a sentence, and nothing is lost for its successor.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.local.embedded import EmbeddedBroker
from streams.runtime.errors import BrokerUnavailableError, StreamError
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.role import accumulator
from streams.runtime.role.definition import Role
from tests.fakes import ScriptedKernel, echo
from tests.kafka import looping, producing, put, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import pytest

# Kafka's numbers of requests and errors (kafka.apache.org/protocol).
PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
COMMIT, OFFSETS, COORDINATOR, JOIN, HEARTBEAT, SYNC = 8, 9, 10, 11, 12, 14
PASSING: Final = {
    PRODUCE: (3, 5, 6, 7, 19, 20),
    FETCH: (3, 5, 6, 1),
    LIST_OFFSETS: (3, 5, 6),
    METADATA: (5,),
    COMMIT: (7, 14, 15, 16, 22, 25, 27),
    OFFSETS: (14, 15, 16),
    COORDINATOR: (14, 15),
    JOIN: (14, 15, 16, 25),
    HEARTBEAT: (15, 16, 22, 25, 27),
    SYNC: (15, 16, 22, 25, 27),
}
FORBIDDEN: Final = {
    PRODUCE: (29,),
    FETCH: (29,),
    COMMIT: (30,),
    OFFSETS: (30,),
    COORDINATOR: (30,),
    JOIN: (30,),
    HEARTBEAT: (30,),
    SYNC: (30,),
}
MANY: Final = 20
# A member that may not synchronise joins anew each time, which takes it three seconds.
MANY_OF: Final = {SYNC: 3}
# Between attempts, so that twenty of them take no minute.
REST_S: Final = 0.4
VALUES: Final = [b"%d" % number for number in range(5)]
AT_ONCE: Final = 48
PATIENCE_S: Final = 25.0


class Case(NamedTuple):
    """A refusal: of which request, with which code, how often, on which way to use Kafka."""

    api: int
    code: int
    times: int
    is_fast: bool


class Outcome(NamedTuple):
    """What became of a role: why it ended, if it did, and what it and its successor have written."""

    ended: str
    written: set[bytes | None]


def cases(codes: dict[int, tuple[int, ...]]) -> list[Case]:
    """Return all cases of these codes."""
    once = [(api, code, 1) for api, its in codes.items() for code in its]
    often = [(api, code, MANY_OF.get(api, MANY)) for api, its in codes.items() for code in its]
    return [Case(*refusal, is_fast) for refusal in (*once, *often) for is_fast in (True, False)]


@asynccontextmanager
async def embedded() -> AsyncIterator[EmbeddedBroker]:
    """Start a broker, and stop it at the end of a block."""
    broker = EmbeddedBroker().start()
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


async def tried(case: Case) -> Outcome:
    """Run a role through a refusal; where it ends, its successor without one."""
    async with embedded() as broker:
        connection = KafkaConnection(broker.bootstrap, "p", fast=case.is_fast)
        await asyncio.to_thread(broker.create_topics, {"p.in": 1, "p.out": 1, "p.reports": 1})
        await asked(connection)
        await asyncio.to_thread(broker.cluster.push_request_errors, case.api, [case.code] * case.times)
        ended = await attempt(connection)
        await asyncio.to_thread(broker.cluster.clear_request_errors, case.api)
        if ended:
            assert not await attempt(connection)
        return Outcome(ended, {record.value for record in await take(connection, "out")})


async def asked(connection: KafkaConnection) -> None:
    """Put the records there; on a busy machine a broker that has just started answers late."""
    while True:
        with suppress(BrokerUnavailableError):
            async with producing(connection) as transport:
                await put(transport, VALUES)
            return


async def attempt(connection: KafkaConnection) -> str:
    """Run a role until it has written everything, or ended; returns why it ended."""
    kernel = ScriptedKernel(decide=lambda record: [echo(record)])
    role, ended = Role("echo", "echo-1", ("in",)), ""
    try:
        async with looping(connection, kernel, role) as (loop, task):
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while not task.done() and not is_done(kernel, loop._tracker.outstanding()):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
    except* StreamError as group:
        ended = "; ".join(str(fault) for fault in leaves(group))
    return ended


def is_done(kernel: ScriptedKernel, outstanding: int) -> bool:
    """Whether all records were given to the kernel and have their outcome."""
    return {*kernel.seen()} >= {*VALUES} and outstanding == 0


def leaves(group: BaseExceptionGroup[StreamError]) -> Iterator[BaseException]:
    """Yield what a group holds."""
    for fault in group.exceptions:
        if isinstance(fault, BaseExceptionGroup):
            yield from leaves(fault)
        else:
            yield fault


async def all_tried(them: list[Case]) -> dict[Case, Outcome]:
    """Try cases, some at once."""
    free = asyncio.Semaphore(AT_ONCE)
    # Each call to a broker waits for a thread of its own, and must not hold up the others' loop.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))

    async def one(case: Case) -> tuple[Case, Outcome]:
        async with free:
            return case, await tried(case)

    return dict(await asyncio.gather(*map(one, them)))


async def test_what_may_pass_ends_no_role_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and twenty times in a row; by our own requests and by aiokafka's alone."""
    monkeypatch.setattr(accumulator, "BACKOFF_MAX_S", REST_S)
    found = await all_tried(cases(PASSING))
    assert {case: outcome for case, outcome in found.items() if outcome != ("", {*VALUES})} == {}


async def test_what_a_person_has_to_change_is_said_and_nothing_is_lost() -> None:
    """A right that is missing: the role waits for it, or ends and says which; its successor goes on."""
    found = await all_tried(cases(FORBIDDEN))
    assert {case: outcome for case, outcome in found.items() if outcome.written != {*VALUES}} == {}
    silent = {case: its.ended for case, its in found.items() if its.ended and "right" not in its.ended}
    assert silent == {}
