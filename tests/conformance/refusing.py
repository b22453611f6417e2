"""Runs what uses Kafka against brokers that refuse its requests as `refusals` says, many of them at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from deploy.local.embedded import EmbeddedBroker
from schemas.topics import dead_letters
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.connection import KafkaConnection
from tests.conformance.refusals import ANSWERS, Api, Code
from tests.kafka import producing, put

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

T = TypeVar("T")
MANY: Final = 20
# What only a person can change, and what blames a record, is refused until the broker is told to allow it.
EVER: Final = 1_000
# A role leaves once, and so may be refused that once.
MANY_OF: Final = {Api.LEAVE: 1}
# The first question of each of a role's two clients names no topic, and so is refused none.
NAMELESS: Final = 2
AT_ONCE: Final = 48
# Far longer than any case takes on a busy machine: a case that is not through by then has failed.
PATIENCE_S: Final = 240.0
VALUES: Final = [b"%d" % number for number in range(5)]
LETTERS: Final = dead_letters("out")


class Case(NamedTuple):
    """A refusal: of which request, with which code, how often, on which way to use Kafka."""

    api: Api
    code: Code
    times: int
    is_fast: bool


class Refusing:
    """A broker that refuses a request as its case says, from `refuse` on."""

    def __init__(self, broker: EmbeddedBroker, case: Case) -> None:
        self._cluster = broker.cluster
        self.case = case
        self.connection = KafkaConnection(broker.bootstrap, "p", fast=case.is_fast)

    def refuse(self, fetches: int = 1) -> None:
        """Begin; what a broker refuses for a partition, and what it says of topics, is not the answer as a whole.

        Args:
            fetches: how many are refused of those that are refused for ever. These cannot be taken back.
        """
        api, code, times, _ = self.case
        self._cluster.track_requests()
        if api is Api.METADATA:
            self._say_of_topics(code)
        elif api is Api.FETCH:
            self._cluster.push_partition_errors("p.in", 0, api, [code] * (fetches if times == EVER else times))
        elif code in ANSWERS[api].blaming:
            self._cluster.push_partition_errors("p.out", 0, api, [code] * times)
        else:
            self._cluster.push_request_errors(api, [code] * times)

    def refused(self) -> int:
        """How many requests were refused: the first that came."""
        came = self._cluster.requests()[self.case.api]
        return min(self.case.times, max(0, came - NAMELESS) if self.case.api is Api.METADATA else came)

    def requests(self) -> set[int]:
        """Which kinds of requests have come."""
        return {*self._cluster.requests()}

    def is_over(self) -> bool:
        """Whether all refusals were met that a role can meet before it stops."""
        api, code, times, _ = self.case
        is_met = self.refused() >= times or api is Api.LEAVE or code in ANSWERS[api].blaming
        if is_met and api is Api.METADATA:
            self._say_of_topics(0)
        return is_met

    def allow(self) -> None:
        """Refuse nothing more; a person has changed what was to be changed."""
        self.case = self.case._replace(times=0)
        self._say_of_topics(0)
        self._cluster.clear_request_errors(self.case.api)

    def _say_of_topics(self, code: int) -> None:
        for topic in ("p.in", "p.out"):
            self._cluster.topic_error(topic, code)


def cases(codes: Callable[[Api], Sequence[Code]], *times: int) -> list[Case]:
    """Return all cases of these codes, each so often; those of a group's rhythm take longest, and come first."""
    return [
        Case(api, code, count, is_fast)
        for api in reversed(Api)
        for code in codes(api)
        for count in sorted({min(count, MANY_OF.get(api, count)) for count in times})
        for is_fast in (True, False)
    ]


@asynccontextmanager
async def refusing(case: Case) -> AsyncIterator[Refusing]:
    """Start a broker with its topics, and stop it at the end of a block."""
    broker = EmbeddedBroker().start()
    try:
        broker.create_topics({"p.in": 1, "p.out": 1, "p.reports": 1, f"p.{LETTERS}": 1})
        yield Refusing(broker, case)
    finally:
        await asyncio.to_thread(broker.stop)


async def asked(connection: KafkaConnection, values: list[bytes]) -> None:
    """Put the records there; on a busy machine a broker that has just started answers late."""
    while True:
        with suppress(BrokerUnavailableError):
            async with producing(connection) as transport:
                await put(transport, values)
            return


async def all_tried(try_one: Callable[[Case], Awaitable[T]], them: list[Case]) -> dict[Case, T]:
    """Try cases, some at once."""
    free = asyncio.Semaphore(AT_ONCE)
    # Each call to a broker waits for a thread of its own, and must not hold up the others' loop.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))

    async def one(case: Case) -> tuple[Case, T]:
        async with free:
            return case, await try_one(case)

    return dict(await asyncio.gather(*map(one, them)))
