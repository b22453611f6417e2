"""Every request of a role is refused with every code that a broker has for it (`refusals`), once and twenty times.

Many cases run at once, each on an embedded broker of its own that has the refusals ready when the role starts. What may
pass is got over. What only a person can change ends the role in a sentence, and its successor goes on. What blames a
record makes a dead letter of it. Nothing is lost.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from deploy.local.embedded import EmbeddedBroker
from schemas.topics import dead_letters
from streams.runtime.errors import BrokerUnavailableError, StreamError
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.role import accumulator
from streams.runtime.role.definition import Role
from tests.conformance.refusals import ANSWERS, Api, Code
from tests.fakes import ScriptedKernel, echo
from tests.kafka import looping, producing, put, take, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

MANY: Final = 20
# What only a person can change, and what blames a record, is refused until the broker is told to allow it.
EVER: Final = 1_000
# A role leaves once, and so may be refused that once.
MANY_OF: Final = {Api.LEAVE: 1}
# The first question of each of a role's two clients names no topic, and so is refused none.
NAMELESS: Final = 2
# Between attempts, so that twenty of them take no minute.
REST_S: Final = 0.4
VALUES: Final = [b"%d" % number for number in range(5)]
LATER: Final = b"later"  # is written when all refusals are over
LETTERS: Final = dead_letters("out")
AT_ONCE: Final = 48
# Far longer than any case takes on a busy machine: a case that is not through by then has failed.
PATIENCE_S: Final = 240.0


class Case(NamedTuple):
    """A refusal: of which request, with which code, how often, on which way to use Kafka."""

    api: Api
    code: Code
    times: int
    is_fast: bool


class Outcome(NamedTuple):
    """What became of a role: why it ended, how often it was refused, what it and its successor have written."""

    ended: str
    refused: int
    written: frozenset[bytes | None]
    letters: int


class Refusing:
    """A broker that refuses a request as its case says, from `refuse` on."""

    def __init__(self, broker: EmbeddedBroker, case: Case) -> None:
        self._cluster = broker.cluster
        self.case = case
        self.connection = KafkaConnection(broker.bootstrap, "p", fast=case.is_fast)

    def refuse(self) -> None:
        """Begin; what a broker refuses for a partition, and what it says of topics, is not the answer as a whole."""
        api, code, times, _ = self.case
        self._cluster.track_requests()
        if api is Api.METADATA:
            self._say_of_topics(code)
        elif api is Api.FETCH:
            # These cannot be taken back; the first of those that last ends the role.
            self._cluster.push_partition_errors("p.in", 0, api, [code] * (1 if times == EVER else times))
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


async def tried(case: Case) -> Outcome:
    """Run a role through a refusal; where it ends, its successor without one."""
    async with refusing(case) as broker:
        await asked(broker.connection, VALUES)
        broker.refuse()
        ended = await attempt(broker)
        if not ended and case.times < EVER:
            with suppress(TimeoutError):  # on a busy machine a role is gone before it has left
                await until(lambda: broker.refused() == case.times)
        refused = broker.refused()
        broker.allow()
        if ended:
            assert not await attempt(broker, ())  # what its predecessor has committed does not come again
        written = await take(broker.connection, "out")
        letters = len(await take(broker.connection, LETTERS))
        return Outcome(ended, refused, frozenset(one.value for one in written), letters)


async def asked(connection: KafkaConnection, values: list[bytes]) -> None:
    """Put the records there; on a busy machine a broker that has just started answers late."""
    while True:
        with suppress(BrokerUnavailableError):
            async with producing(connection) as transport:
                await put(transport, values)
            return


async def attempt(broker: Refusing, values: Sequence[bytes] = VALUES) -> str:
    """Run a role until its refusals are over, it has seen the values and worked on, or it has ended; returns why."""
    kernel = ScriptedKernel(decide=lambda record: [echo(record)])
    role, ended, has_begun = Role("echo", "echo-1", ("in",)), "", False

    def is_through(values: Sequence[bytes]) -> bool:
        return {*kernel.seen()} >= {*values} and loop._tracker.outstanding() == 0

    try:
        async with looping(broker.connection, kernel, role) as (loop, task):
            has_begun = True
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await reached(task, lambda: broker.is_over() and is_through(values))
                    if not task.done():
                        await asked(broker.connection, [LATER])
                    await reached(task, lambda: is_through([LATER]))
    except* StreamError as group:
        ended = "; ".join(str(fault) for fault in leaves(group))
    if not has_begun:  # its producer has waited in vain for a broker that has just started: as in `asked`
        return await attempt(broker, values)
    return ended


async def reached(task: asyncio.Task[None], condition: Callable[[], bool]) -> None:
    """Wait for what other tasks bring about, as long as a role runs."""
    while not task.done() and not condition():  # noqa: ASYNC110 - it is the broker's doing, there is no event for it
        await asyncio.sleep(0.05)


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


EVERYTHING: Final = frozenset((*VALUES, LATER))


async def test_the_table_has_every_request_that_a_role_makes() -> None:
    """From the first connection to the last farewell, on both ways."""
    for is_fast in (True, False):
        async with refusing(Case(Api.VERSIONS, Code.INVALID_RECORD, 0, is_fast)) as broker:
            await asked(broker.connection, VALUES)
            broker.refuse()
            assert not await attempt(broker)
            await until(lambda: broker.requests() >= ANSWERS.keys())
            assert broker.requests() == ANSWERS.keys()


@pytest.mark.timeout(900)  # it waits for sessions to end, and where others have the cores for those
async def test_what_may_pass_ends_no_role_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and twenty times in a row; by our own requests and by aiokafka's alone."""
    monkeypatch.setattr(accumulator, "BACKOFF_MAX_S", REST_S)
    found = await all_tried(cases(lambda api: ANSWERS[api].passing, 1, MANY))
    wrong = {case: its for case, its in found.items() if its != Outcome("", case.times, EVERYTHING, 0)}
    assert wrong == {}


async def test_what_a_person_has_to_change_is_said_and_nothing_is_lost() -> None:
    """The role ends in a sentence that says what; its successor goes on."""
    found = await all_tried(cases(lambda api: [*ANSWERS[api].lasting], EVER))
    silent = {case: its for case, its in found.items() if ANSWERS[case.api].lasting[case.code] not in its.ended}
    assert silent == {}
    assert {case: its for case, its in found.items() if its.written != EVERYTHING or not its.refused} == {}


async def test_what_blames_a_record_makes_a_dead_letter_of_it() -> None:
    """The role goes on, and ends for none of them."""
    found = await all_tried(cases(lambda api: ANSWERS[api].blaming, EVER))
    wrong = {case: its for case, its in found.items() if its.ended or its.written or its.letters != len(EVERYTHING)}
    assert wrong == {}
