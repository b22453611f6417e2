"""A worker of fixed capacity in virtual time, in front of it admission or nothing."""

from __future__ import annotations

from collections import deque

from schemas.records import ModelPredictions, Outcome, Tensor
from streams.operators.selection.admission import Admission

NOW = 1_700_000_000_000_000
BATCH_US = 5_000
ROW_US = 1_000
CAP = 40
SLO_US = 100_000
LEG_US = 2_000  # each way between selection and worker
CAPACITY = CAP * 1e6 / (BATCH_US + CAP * ROW_US)  # rows/s
_NOTHING = Tensor("int64", (0,), b"")


def simulate(rate: float, *, is_admitting: bool, seconds: float = 5.0, row_us: int = ROW_US) -> float:
    """Return the rows/s that were back in time, of evenly spaced arrivals; the worker drops nothing."""
    admission = Admission()
    queue: deque[tuple[int, int]] = deque()  # (arrives at the worker, due)
    reports: deque[tuple[int, ModelPredictions]] = deque()
    free_us, good, end_us = NOW, 0, NOW + int(seconds * 1e6)
    for index in range(int(rate * seconds)):
        now_us = NOW + int(index * 1e6 / rate)
        while True:
            started_us = max(free_us, queue[0][0]) if queue else end_us
            if started_us >= now_us:
                break
            batch = [queue.popleft() for _ in range(min(CAP, sum(sent <= started_us for sent, _ in queue)))]
            took_us = BATCH_US + row_us * len(batch)
            free_us = started_us + took_us
            good += sum(free_us + LEG_US <= due_us for _, due_us in batch)
            waiting = sum(sent <= started_us for sent, _ in queue)
            reports.append((free_us + LEG_US, _report(len(batch), took_us, waiting)))
        while reports and reports[0][0] <= now_us:
            at_us, report = reports.popleft()
            admission.report(report, at_us)
        due_us = now_us + SLO_US
        if not is_admitting or admission.admits("m", due_us - LEG_US, now_us):
            admission.ask(("m",), due_us, now_us)
            queue.append((now_us + LEG_US, due_us))
    return good / seconds


def _report(rows: int, took_us: int, waiting: int) -> ModelPredictions:
    ids, fine = ("q",) * rows, (Outcome.OK,) * rows
    return ModelPredictions("m", "1", "w", ids, fine, _NOTHING, None, (0,) * rows, took_us, rows, CAP, waiting)
