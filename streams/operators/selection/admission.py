"""Admission: a query that a model cannot answer in time is refused at once, so that the others are answered in time.

    asked ──▶ rows ahead ──┐
    reports ──▶ a + b·n ───┴──▶ done at ≈ start + ⌈rows/cap⌉·(a + b·cap) ≤ due?  else `overloaded`

The rule is Clockwork's (OSDI'20). Rows ahead are counted here (asked, not yet reported) and by the workers (rows of
other selection processes). Everything is admitted without reports, and while only a handful of rows, or one batch of
the last size, is ahead. Every `PROBE_US` a probe is let through, so an estimate that is too high is corrected by the
reports that follow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import ModelPredictions

PROBE_US = 50_000
FEW_ROWS = 8  # so many may always wait: too few to mean overload, enough to fill a batch and to correct an estimate
LOST_US = 2_000_000  # rows asked so long ago, and past their due time, are not coming back (their worker died)
SILENT_US = 1_000_000  # a worker that has not reported for so long does not share the load
RANK_US = 1_000_000  # for how long a priority that was seen keeps lower ones back
MIN_SHARE = 0.25  # of the time that is left, which the lowest priority may still use
_KEEP = 0.9  # of the past, at each report: about ten batches are remembered (Clockwork's window)
_CHECKPOINT_US = 100_000


class ModelLoad:
    """The load of one model: rows ahead, and how fast they go."""

    __slots__ = (
        "_asked",
        "_batch_rows",
        "_cap",
        "_checkpoints",
        "_foreign",
        "_latest_due_us",
        "_probed_us",
        "_returned",
        "_start_us",
        "_sums",
        "_workers",
        "batch_us",
        "row_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self._asked = 0
        self._returned = 0
        self._foreign = 0  # rows waiting in workers that somebody else asked
        self._batch_rows = 0
        self._start_us = 0  # since when the rows ahead are being worked on
        self._probed_us = 0
        self._latest_due_us = 0
        self._checkpoints: deque[tuple[int, int]] = deque()  # (when they are lost, rows asked until then)
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # decayed: 1, n, t, n², n·t
        self._workers: dict[str, tuple[int, int]] = {}  # last report (us), rows left waiting
        self.batch_us = 0.0  # a: the cost of a batch, however small
        self.row_us = 0.0  # b: the cost of one more row
        self._cap = 0.0  # rows a batch, as last reported; 0 = nothing has been

    @property
    def ahead(self) -> int:
        """Rows that have been asked and not reported, ours and others'."""
        return self._asked - self._returned + self._foreign

    def admits(self, due_us: int, now_us: int, share: float = 1.0) -> bool:
        """Tell whether a row asked now would be done by `due_us`; once every `PROBE_US` it is admitted regardless.

        Args:
            due_us: when its output must be on its way back.
            now_us: now.
            share: of the time left that it may use; less for lower priorities.
        """
        ahead = self._asked - self._returned + self._foreign
        cap = self._cap
        if ahead <= self._batch_rows or not cap:
            return True
        fixed_us, row_us, left_us = self.batch_us, self.row_us, (due_us - now_us) * share
        batch_us = fixed_us + cap * row_us
        if batch_us > left_us / 2 and row_us:  # the worker makes smaller ones then: one waits while another runs
            room_us = left_us / 2 if fixed_us < left_us / 2 else left_us
            cap = min(cap, max(1.0, (room_us - fixed_us) / row_us))
            batch_us = fixed_us + cap * row_us
        # The batch that runs has been running since the last report; one that hangs does not count as progress.
        start_us = max(self._start_us, now_us - batch_us)
        if start_us + (int(ahead / (cap * len(self._workers))) + 1) * batch_us <= now_us + left_us:
            return True
        if now_us - self._probed_us < PROBE_US:
            return False
        self._probed_us = now_us
        self._age(now_us)
        return True

    def has_room(self, rows: int) -> bool:
        """Tell whether so many rows are admitted now whenever they are due: they are few, or nothing is known."""
        return not self._cap or self.ahead + rows - 1 <= self._batch_rows

    def ask(self, due_us: int, now_us: int, rows: int = 1) -> None:
        """Count rows asked, the last of which is due then."""
        if self._asked == self._returned:
            self._start_us = now_us
        self._asked += rows
        self._latest_due_us = max(self._latest_due_us, due_us)

    def report(self, batch: ModelPredictions, now_us: int, *, is_beside: bool = False) -> None:
        """Learn from a worker's batch: its rows are no longer ahead, and how long they took.

        Args:
            batch: of any version.
            now_us: now.
            is_beside: a canary's; its speed and its queue say nothing about the other queue.
        """
        self._returned = min(self._asked, self._returned + len(batch.query_ids))
        self._age(now_us)
        if is_beside:
            return
        self._start_us = now_us
        self._workers[batch.worker] = now_us, batch.queue_rows
        if len(self._workers) > 1:
            self._workers = {name: seen for name, seen in self._workers.items() if now_us - seen[0] < SILENT_US}
        waiting = sum(rows for _, rows in self._workers.values())
        self._foreign = max(0, waiting - (self._asked - self._returned))
        if batch.batch_rows > 0 and batch.predict_us > 0:
            self._fit(batch.batch_rows, batch.predict_us)
            self._batch_rows = max(FEW_ROWS, batch.batch_rows)
            self._cap = max(1, batch.batch_cap)

    def _age(self, now_us: int) -> None:
        """Give up on rows that were never reported."""
        checkpoints = self._checkpoints
        if not checkpoints or checkpoints[-1][0] - LOST_US < max(now_us, self._latest_due_us) - _CHECKPOINT_US:
            checkpoints.append((max(now_us, self._latest_due_us) + LOST_US, self._asked))
        while checkpoints and checkpoints[0][0] <= now_us:
            self._returned = max(self._returned, checkpoints.popleft()[1])

    def _fit(self, rows: int, took_us: int) -> None:
        one, n, t, nn, nt = (_KEEP * old for old in self._sums)
        self._sums = one + 1, n + rows, t + took_us, nn + rows * rows, nt + rows * took_us
        self.row_us = self._slope()
        self.batch_us = max(0.0, t + took_us - self.row_us * (n + rows)) / (one + 1)

    def _slope(self) -> float:
        """Return b of a + b·n, between 0 and its value for a = 0. If all sizes are equal, b is 0.

        That is the optimistic guess: it admits more, and the larger batches then separate b from a.
        """
        one, n, t, nn, nt = self._sums
        spread = one * nn - n * n
        return min(max(0.0, (one * nt - n * t) / spread), t / n) if spread > 1e-6 * nn * one else 0.0


class Admission:
    """The loads of all models, and which priorities are about."""

    __slots__ = ("_loads", "_seen_us")

    def __init__(self) -> None:
        self._loads: dict[str, ModelLoad] = {}
        self._seen_us: dict[int, int] = {}  # priorities and when they last were seen, once there is one but 0

    def load(self, model: str) -> ModelLoad:
        """Return a model's load."""
        load = self._loads.get(model)
        if load is None:
            load = self._loads[model] = ModelLoad()
        return load

    def admits(self, model: str, due_us: int, now_us: int, priority: int = 0) -> bool:
        """Tell whether a model would answer in time; of several priorities the lowest is refused first."""
        load = self._loads.get(model)
        if load is None:
            return True
        share = 1.0 if not (priority or self._seen_us) else self._share(priority, now_us)
        return load.admits(due_us, now_us, share)

    def has_room(self, models: Sequence[str], rows: int) -> bool:
        """Tell whether each of these models would admit so many rows, whenever they are due, without priorities."""
        loads = [self._loads.get(model) for model in models]
        return not self._seen_us and all(load is None or load.has_room(rows) for load in loads)

    def ask(self, models: Sequence[str], due_us: int, now_us: int, rows: int = 1) -> None:
        """Count rows asked of each of these models, the last of which is due then."""
        for model in models:
            load = self._loads.get(model) or self.load(model)
            load.ask(due_us, now_us, rows)

    def report(self, batch: ModelPredictions, now_us: int, *, is_beside: bool = False) -> None:
        """Learn from a worker's batch; `is_beside`: of a version beside the one that serves."""
        self.load(batch.model).report(batch, now_us, is_beside=is_beside)

    def clear(self) -> None:
        """Forget what has been asked; it is read and asked again."""
        self._loads.clear()

    def _share(self, priority: int, now_us: int) -> float:
        """Return the share of the time left for a priority: all for the highest seen lately, half for the next."""
        higher = sum(rank > priority and now_us - seen_us < RANK_US for rank, seen_us in self._seen_us.items())
        self._seen_us[priority] = now_us
        if len(self._seen_us) > 8:  # a client may make up any number of them
            self._seen_us = dict(sorted(self._seen_us.items(), reverse=True)[:8])
        return float(max(MIN_SHARE, 0.5**higher))
