"""Sees to it that a model whose batch nobody ends is asked again: between a role's effects and what runs its models.

    Predict ─▶ noted ─▶ executors ─┬─▶ predicted ─▶ the kernel
                 │                 └─▶ nothing
                 └─ look ·· look ·· look: it is failed, logged and counted ─▶ the kernel

What runs models bounds each batch by its patience, and tells how it ended. This is for the case that it does not, be it
through an error of its own: without it the model's lane would wait for ever, and answer nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streams.operators.contract import Predicted, Ran
from streams.operators.statistics import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents, Executors

_log = logging.getLogger(__name__)

# Looks are counted rather than time: of a process that was stopped for an hour, an hour says nothing.
LOOK_S: Final = 0.5
# What runs a model acts on a batch that has outlived its patience. After this many times its patience it did not.
TIMES: Final = 2
COUNTER: Final = "batches_given_up_total"


@dataclass(slots=True)
class _Open:
    """A batch, or a part of one, that is with a model: how many looks it may outlive still."""

    predict: Predict
    looks: int


class BatchWatch:
    """Watches executors, in whose place it stands.

    Attributes:
        counters: batches that were given up, by model.
    """

    def __init__(self, executors: Executors) -> None:
        """Nothing runs yet."""
        self._executors = executors
        self._open: dict[int, _Open] = {}
        self._has_batches = asyncio.Event()
        self.counters: Counter[str] = Counter()

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks."""
        self._events = events
        self._executors.connect(events._replace(predicted=self._on_predicted), tasks)

    async def run(self) -> None:
        """Look again and again while a batch runs, until cancelled."""
        while True:
            await self._has_batches.wait()
            await asyncio.sleep(LOOK_S)
            self.look()
            if not self._open:
                self._has_batches.clear()

    def look(self) -> None:
        """Give up what has outlived so many looks."""
        for each in self._open.values():
            each.looks -= 1
        for each in [each for each in self._open.values() if each.looks < 0]:
            self._give_up(each.predict)

    def load(self, load: Load) -> None:
        """Pass it on."""
        self._executors.load(load)

    def unload(self, unload: Unload) -> None:
        """Pass it on."""
        self._executors.unload(unload)

    def predict(self, predict: Predict) -> None:
        """Note a batch with all its parts, which are waited for one after the other, and pass it on."""
        parts = (predict, *predict.joined)
        looks = int(TIMES * sum(part.patience_us for part in parts) / 1e6 / LOOK_S) + 1
        self._open |= {part.batch_id: _Open(part, looks) for part in parts}
        self._has_batches.set()
        self._executors.predict(predict)

    def go_on(self) -> None:
        """Pass it on."""
        self._executors.go_on()

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Pass it on: when it returns, the batch has ended."""
        return self._executors.ask_now(model, copy, rows, patience_us)

    async def loaded(self) -> None:
        """Pass it on."""
        await self._executors.loaded()

    async def stop(self) -> None:
        """Pass it on."""
        await self._executors.stop()

    def statistics(self) -> Mapping[str, float]:
        """Return what is known of the models, and how many of their batches were given up."""
        return {**self._executors.statistics(), **self.counters}

    def _on_predicted(self, predict: Predict, ran: Ran) -> None:
        """Tell of a batch, unless it has been given up."""
        if self._open.pop(predict.batch_id, None) is not None:
            self._events.predicted(predict, ran)

    def _give_up(self, predict: Predict) -> None:
        rows, took_us = len(predict.rows), TIMES * predict.patience_us
        fault = f"nobody has told within {took_us / 1e6:g} s what became of {rows} rows"
        _log.error("model %s: %s; they fail, and it is asked again", predict.model, fault)
        self.counters[render((COUNTER, "model", predict.model))] += 1
        self._on_predicted(predict, Ran(Predicted.failed(rows, fault), took_us))
