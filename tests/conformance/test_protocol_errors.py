"""Every request of a role is refused with every code that a broker has for it (`refusals`), once and twenty times.

Many cases run at once, each on an embedded broker of its own that has the refusals ready when the role starts. What may
pass is got over. What only a person can change ends the role in a sentence, and its successor goes on. What blames a
record makes a dead letter of it. Nothing is lost.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from streams.runtime.errors import StreamError
from streams.runtime.role import accumulator
from streams.runtime.role.definition import Role
from tests.conformance.refusals import ANSWERS, Api, Code
from tests.conformance.refusing import (
    EVER,
    LETTERS,
    MANY,
    PATIENCE_S,
    VALUES,
    Case,
    Refusing,
    all_tried,
    asked,
    cases,
    refusing,
)
from tests.fakes import ScriptedKernel, echo
from tests.kafka import looping, take, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Between attempts, so that twenty of them take no minute.
REST_S: Final = 0.4
LATER: Final = b"later"  # is written when all refusals are over


class Outcome(NamedTuple):
    """What became of a role: why it ended, how often it was refused, what it and its successor have written.

    What was asked may be there twice: on a busy machine a broker takes what it has not answered yet.
    """

    ended: str
    refused: int
    written: frozenset[bytes | None]
    asked: int
    letters: tuple[bytes | None, ...]

    def has_answered(self) -> bool:
        """Whether nothing had to be written as a letter."""
        return not self.ended and self.written == EVERYTHING and not self.letters

    def has_blamed(self) -> bool:
        """Whether each record has its letter: with its value, or without one where even that was too large."""
        told = {*self.letters}
        return not self.ended and not self.written and len(self.letters) == self.asked and told in ({b""}, EVERYTHING)


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
        asked_for, written, letters = [
            tuple(record.value for record in await take(broker.connection, topic)) for topic in ("in", "out", LETTERS)
        ]
        return Outcome(ended, refused, frozenset(written), len(asked_for), letters)


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
    found = await all_tried(tried, cases(lambda api: ANSWERS[api].passing, 1, MANY))
    wrong = {case: its for case, its in found.items() if its.refused != case.times or not its.has_answered()}
    assert wrong == {}


async def test_what_a_person_has_to_change_is_said_and_nothing_is_lost() -> None:
    """The role ends in a sentence that says what; its successor goes on."""
    found = await all_tried(tried, cases(lambda api: [*ANSWERS[api].lasting], EVER))
    silent = {case: its for case, its in found.items() if ANSWERS[case.api].lasting[case.code] not in its.ended}
    assert silent == {}
    assert {case: its for case, its in found.items() if its.written != EVERYTHING or not its.refused} == {}


async def test_what_blames_a_record_makes_a_dead_letter_of_it() -> None:
    """The role goes on, and ends for none of them."""
    found = await all_tried(tried, cases(lambda api: ANSWERS[api].blaming, EVER))
    assert {case: its for case, its in found.items() if not its.has_blamed()} == {}
