"""Gets one version ready, step by step: loads it, then tries it on the last rows and discards the answers.

    prepare ─▶ Load ─▶ on_loaded ─▶ Predict asked rows ─▶ Predict answered rows ─▶ ready, or the fault

A plan is a generator. It puts effects out and yields what it waits for, so it needs neither a clock nor a task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from schemas.records import Outcome
from streams.operators.contract import Load, Predict, Unload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Input, Model
    from streams.operators.contract import Effects, Predicted
    from workers.kernel.model.warm_up import Trial

T = TypeVar("T")


class Pause(NamedTuple):
    """What a plan waits for: a condition, or a time (us)."""

    is_over: Callable[[], bool]
    until_us: int | None = None


Plan: TypeAlias = Generator[Pause, None, T]

# No query waits for the warm-up, and the first rows of a network may take seconds.
WARM_UP_US = 60_000_000


class Loader:
    """Loads copies of versions and tries them.

    Attributes:
        effects: what plans have put out.
        first: the number of the first copy.
        loaded: the copies that there are, each with its fault, "" if there is none; None = it is being loaded.
    """

    def __init__(self, number: Callable[[], int], copies: Iterator[int] | None = None) -> None:
        """Start with no copy; `number` returns the number of the next batch, `copies` those of copies."""
        self.effects: Effects = []
        self.loaded: dict[int, str | None] = {}
        self._number = number
        copies = count() if copies is None else copies
        self.first = next(copies)
        self._copies = chain((self.first,), copies)
        self._tried: dict[int, tuple[int, Predicted | None]] = {}  # batches that are tried, and of which copy

    def prepare(
        self, model: Model, trial: Trial, *, vital: bool = False, beside: bool = False
    ) -> Plan[tuple[int, str]]:
        """Get a copy of a version ready; returns it and the fault, "" if there is none; a faulty copy is dropped."""
        copy = next(self._copies)
        self.loaded[copy] = None
        self.effects.append(Load(model, copy, vital, beside))
        yield from self._wait(copy)
        if not self.loaded[copy] and trial.asked:
            yield from self._try(model, copy, trial.asked)
        if not self.loaded[copy] and trial.answered:
            predicted = yield from self._try(model, copy, trial.answered)
            if not self.loaded[copy] and Outcome.OK not in predicted.outcomes:
                why = predicted.fault or "they do not fit its signature"
                self.release(model, copy)
                return copy, f"it answers none of {len(trial.answered)} rows that were asked just now: {why}"
        fault = self.loaded[copy]
        if fault:
            del self.loaded[copy]
        return copy, fault or ""

    def release(self, model: Model, copy: int) -> None:
        """Drop a copy, unless the runtime has dropped it."""
        if copy in self.loaded:
            del self.loaded[copy]
            self.effects.append(Unload(model.name, model.version, copy))

    def on_loaded(self, copy: int, fault: str | None) -> None:
        """Note whether a copy was loaded."""
        if copy in self.loaded:
            self.loaded[copy] = fault or ""

    def on_predicted(self, batch_id: int, results: Predicted, *, is_lost: bool) -> bool:
        """Note the outcome of a trial batch; False if this batch is none."""
        if batch_id not in self._tried:
            return False
        copy, _ = self._tried[batch_id]
        self._tried[batch_id] = copy, results
        if is_lost:
            self.loaded[copy] = None
        return True

    def _try(self, model: Model, copy: int, rows: Sequence[Input]) -> Plan[Predicted]:
        """Predict rows; if the model is lost over them, wait until it has been loaded again, or cannot be."""
        batch_id = self._number()
        self._tried[batch_id] = copy, None
        self.effects.append(Predict(batch_id, model.name, model.version, rows, WARM_UP_US, copy))
        yield Pause(lambda: self._tried[batch_id][1] is not None)
        _, predicted = self._tried.pop(batch_id)
        yield from self._wait(copy)
        if predicted is None:
            raise AssertionError("the pause ends when the batch has been predicted")
        return predicted

    def _wait(self, copy: int) -> Plan[None]:
        yield Pause(lambda: self.loaded[copy] is not None)
