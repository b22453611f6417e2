"""What a version is tried on before it answers: the last rows of its model, their answers discarded.

batches ─▶ note ─▶ answered: it must answer one of them, too
topic of the model's queries ─▶ asked: where the worker has answered few itself, as just after a start; these warm
                                it up and prove nothing, as no version may ever have answered them
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import DecodeError
from schemas.records import ModelQueries, Outcome
from workers.errors import PackageError, WorkerError, refusing
from workers.inputs.columns import Column
from workers.settings import WARM_UP_ROWS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Record
    from workers.executors.thread import Executor, Timed

# The warm-up is not timed by anybody, and the first rows of a network may take seconds.
WARM_UP_S = 60.0


class Trial(NamedTuple):
    """Rows to try a version on: those that the present one answered, and those that the model was asked."""

    answered: Sequence[Input] = ()
    asked: Sequence[Input] = ()


class Recent:
    """The last rows of a model."""

    def __init__(
        self, recall: Callable[[], Awaitable[Sequence[Input]]] | None = None, rows: int = WARM_UP_ROWS
    ) -> None:
        """Keep the last `rows`; `recall` returns what the model was asked last, of any worker, or nothing."""
        self._most = rows
        self._parts: deque[Sequence[Input]] = deque()  # of batches, in order; made into rows when they are wanted
        self._rows = 0
        self._recall = recall
        self._tried: set[str] = set()

    def note(self, inputs: Sequence[Input], outcomes: Sequence[Outcome]) -> None:
        """Remember rows, those that the served version has answered: another one may be held to them."""
        if outcomes.count(Outcome.OK) < len(inputs):  # almost never
            inputs = [row for row, came in zip(inputs, outcomes, strict=True) if came is Outcome.OK]
        if not inputs:
            return
        part = inputs if len(inputs) <= self._most else inputs[-self._most :]
        self._parts.append(part)
        self._rows += len(part)
        while self._rows - len(self._parts[0]) >= self._most:
            self._rows -= len(self._parts.popleft())

    @property
    def _answered(self) -> tuple[Input, ...]:
        """The last rows that were answered, oldest first."""
        return tuple(row for part in self._parts for row in part)[-self._most :]

    async def trial(self, version: str) -> Trial:
        """Return what to try a version on.

        One that is tried again is held to answered rows alone: it may have hung on what nobody has ever answered.
        """
        if self._recall is None or self._rows >= self._most or version in self._tried:
            return Trial(self._answered)
        self._tried.add(version)
        asked = await self._recall()
        return Trial(self._answered, asked)

    async def rows(self) -> Sequence[Input]:
        """Return the last rows, to be looked at alone: those that were answered and, where they are few, asked."""
        if self._recall is None or self._rows >= self._most:
            return self._answered
        return (*await self._recall(), *self._answered)

    def clear(self) -> None:
        """Forget them: another version answers from now on."""
        self._parts.clear()
        self._rows = 0
        self._tried.clear()


def asked_in(records: Sequence[Record], codec: Codec, most: int = WARM_UP_ROWS) -> Sequence[Input]:
    """Return the last rows of model queries, so many, oldest first; of records that cannot be read there are none."""
    rows: list[Input] = []
    for record in reversed(records):
        try:
            queries = codec.decode(ModelQueries, record.value)
        except DecodeError:
            continue
        column = Column(queries.inputs)
        rows += [column[place] for place in reversed(range(len(queries.query_ids)))]
        if len(rows) >= most:
            break
    return tuple(reversed(rows[:most]))


async def prepare(executor: Executor, trial: Trial) -> None:
    """Load a version and replay the last rows, their answers discarded; loading makes the first call on a blank row.

    Raises:
        PackageError: it cannot be loaded, whatever it raises, or answers none of the rows that the present version
            answers.
        HungError: it does not come back.
        OSError: its files cannot be read.
    """
    try:
        with refusing("it cannot be loaded", but=(WorkerError, OSError)):
            await _rehearse(executor, trial)
    except BaseException:
        await executor.stop()
        raise


async def _rehearse(executor: Executor, trial: Trial) -> None:
    await executor.start()
    if trial.asked:
        await executor.run(trial.asked, WARM_UP_S)
        if not executor.ready:  # a process of the model's own has ended over one of them
            await executor.start()
    if trial.answered:
        _check_warm(await executor.run(trial.answered, WARM_UP_S))


def _check_warm(timed: Timed) -> None:
    outcomes = timed.predicted.outcomes
    if Outcome.OK not in outcomes:
        why = timed.predicted.fault or "they do not fit its signature"
        raise PackageError(f"it answers none of {len(outcomes)} rows that were asked just now: {why}")
