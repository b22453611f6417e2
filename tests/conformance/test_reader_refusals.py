"""Readers outside any group are refused with every code that a broker has for their requests (`refusals`).

They are what a role follows, where it begins, and what a log ends with. What may pass is got over by asking again, and
what only a person can change is said in a sentence at once.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.fast import fetcher
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions, KafkaRecent, KafkaTail
from streams.runtime.role import follower
from streams.runtime.role.follower import Follower
from tests.conformance.refusals import ANSWERS, Api, Code
from tests.conformance.refusing import EVER, MANY, PATIENCE_S, VALUES, Case, all_tried, asked, cases, refusing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from streams.operators.contract import Record
    from tests.conformance.refusing import Refusing

REST_S: Final = 0.2
# What a reader asks for before it reads. A look-up of a log's end reads nothing.
BEFORE: Final = (Api.LIST_OFFSETS, Api.METADATA)
PLACE: Final = ("in", 0)
NAMES: Final = ("followed", "looked up", "ended")
# A question is given up after three seconds. Where it is connecting then, aiokafka leaves that to the collector.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed AIOKafka:ResourceWarning")


class Outcome(NamedTuple):
    """What a reader has seen, how often it was refused, and what it has said of what only a person can change."""

    seen: frozenset[bytes | None]
    refused: int
    said: str


async def followed(broker: Refusing) -> set[bytes | None]:
    """Follow a topic as a role does, until all of it has come and no refusal is left."""
    seen = set[bytes | None]()

    def take(records: Sequence[Record]) -> None:
        seen.update(record.value for record in records)

    following = Follower(KafkaBroadcast(broker.connection, ["in"]), take)
    task = asyncio.create_task(following.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not task.done() and not (broker.is_over() and seen >= {*VALUES}):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await following.stop(3)
    return seen


async def again(broker: Refusing, ask: Callable[[], Awaitable[Sequence[bytes | None]]]) -> set[bytes | None]:
    """Ask until there is an answer, as a role does for where it begins."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            is_over = broker.is_over()
            with suppress(BrokerUnavailableError):
                found = await ask()
                if is_over:
                    return {*found}


async def looked_up(broker: Refusing) -> set[bytes | None]:
    """Find where a log ends and where a window before that begins: all that is between."""
    positions = KafkaPositions(broker.connection)

    async def between() -> Sequence[bytes | None]:
        ends = await positions.ends([PLACE])
        begins = await positions.before(ends, 3_600_000_000)
        return VALUES[begins[PLACE] : ends[PLACE]]

    return await again(broker, between)


async def ended(broker: Refusing) -> set[bytes | None]:
    """Read what a log ends with."""

    async def last() -> Sequence[bytes | None]:
        return [record.value for record in await KafkaRecent(broker.connection).last("in", len(VALUES))]

    return await again(broker, last)


async def tried(read: Callable[[Refusing], Awaitable[set[bytes | None]]], case: Case) -> Outcome:
    """Read a topic through a refusal."""
    async with refusing(case) as broker:
        await asked(broker.connection, VALUES)
        broker.refuse(fetches=MANY)
        try:
            return Outcome(frozenset(await read(broker)), broker.refused(), "")
        except MisconfiguredError as fault:
            return Outcome(frozenset(), broker.refused(), str(fault))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let readers rest shortly, so that twenty refusals take no minutes; what they leave is collected here."""
    monkeypatch.setattr(fetcher, "_REST_MAX_S", REST_S)
    monkeypatch.setattr(follower, "BACKOFF_S", REST_S)
    yield
    gc.collect()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("read", "apis"), [(followed, (Api.FETCH, *BEFORE)), (looked_up, BEFORE), (ended, BEFORE)], ids=NAMES
)
async def test_what_may_pass_keeps_no_reader_from_anything(
    read: Callable[[Refusing], Awaitable[set[bytes | None]]], apis: tuple[Api, ...]
) -> None:
    """Once, and twenty times in a row; by our own requests and by aiokafka's alone."""
    found = await all_tried(partial(tried, read), cases(of(apis, passing), 1, MANY))
    assert {case: its for case, its in found.items() if its != Outcome(frozenset(VALUES), case.times, "")} == {}


@pytest.mark.parametrize(
    ("read", "apis"),
    # Who asks where to begin in a topic reads it in a group, and is told there.
    [(followed, (Api.FETCH, *BEFORE)), (looked_up, (Api.LIST_OFFSETS,)), (ended, BEFORE)],
    ids=NAMES,
)
async def test_what_a_person_has_to_change_is_said(
    read: Callable[[Refusing], Awaitable[set[bytes | None]]], apis: tuple[Api, ...]
) -> None:
    """At once, in the sentence of a role that reads in a group."""
    found = await all_tried(partial(tried, read), cases(of(apis, lasting), EVER))
    silent = {case: its for case, its in found.items() if ANSWERS[case.api].lasting[case.code] not in its.said}
    assert silent == {}


async def test_an_application_that_may_not_read_its_answers_is_told_so() -> None:
    """And not that no broker answers."""
    for case in cases(of(BEFORE, lasting), EVER):
        async with refusing(case) as broker:
            await asked(broker.connection, VALUES)
            broker.refuse()
            tail = KafkaTail(broker.connection, ["in"])
            with pytest.raises(MisconfiguredError, match="no right Read"):
                await tail.start()


def of(apis: tuple[Api, ...], codes: Callable[[Api], Sequence[Code]]) -> Callable[[Api], Sequence[Code]]:
    """Return codes of these requests alone."""
    return lambda api: codes(api) if api in apis else ()


def passing(api: Api) -> Sequence[Code]:
    """Return the codes of what may pass."""
    return ANSWERS[api].passing


def lasting(api: Api) -> Sequence[Code]:
    """Return the codes of what only a person can change."""
    return [*ANSWERS[api].lasting]
