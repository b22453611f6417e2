"""`freshness`: from the time when feedback is written until the first decision by a state that it has taught.

Everything is seen from outside. A decision says how many observations its state has folded, and the log of observations
says in which order. So the n-th observation of the log is in force in the first answer whose state has folded n. The
clock starts when feedback was meant to be written, and stops when that answer is read: the answer's way back is in it,
and so is waiting for somebody to ask. As many queries are asked as feedback is written, and both are sent at their own
times whatever the system does.

The whole loop is one process, models inside: Exp3 over two linear models, one state for all queries.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from load.figures import FAULTS, NONE, P50_MS, P99_MS, Figures, at_most
from load.harness import arrivals, topics
from load.harness.driving import deployed
from load.harness.gc_off import frozen
from load.harness.openloop import IDLE_S, key_of, pace
from load.harness.processes import rest
from load.harness.recorder import SENDER_LATE
from load.harness.system import Deployment
from load.harness.wire import Wire, linger_ms
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, Feedback, Observations, Prediction, Status
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Driver
    from load.harness.openloop import Workload
    from load.harness.system import Stage
    from load.harness.wire import Arrival
    from load.models.training import Digits

NAME = "freshness"
RATES: Final = (100, 1_000, 5_000)  # of queries, and of feedback (1/s)
SECONDS = 8.0
ROUNDS, SHORT_ROUNDS = 5, 1
_APPLICATION = "digits"
_WARM_UP_RATE, _WARM_UP_S = 1_000, 3.0
_DELAY_US = 50_000  # of feedback behind its query: by then it has its answer
_TAIL_S = 2.0  # queries go on for so long, as without one nobody sees what the last feedback has taught
_DRAIN_S = 5.0
_QUIET_CORES = 0.2  # of a system that has nothing left to do
_WINDOW_S = 3_600.0
# Records are made before they are due: so long for each, and a little to spare.
_MAKING_US, _LEAD_US = 60, 50_000

FIGURES = Figures(
    P50_MS(*(f"at_{rate}_p50_ms" for rate in RATES), must=at_most(250)),
    P99_MS(*(f"at_{rate}_p99_ms" for rate in RATES), must=at_most(1_000)),
    P50_MS(*(f"at_{rate}_logged_p50_ms" for rate in RATES)),
    FAULTS(*(f"at_{rate}_unseen" for rate in RATES), must=NONE),
    FAULTS(*(f"at_{rate}_defaults" for rate in RATES)),
    SENDER_LATE(*(f"at_{rate}_sender_late_ms" for rate in RATES)),
)


class Carrier(Protocol):
    """The part of `Wire` that is needed."""

    def produce(self, topic: str, key: bytes, value: bytes, /) -> None:
        """Send a record."""
        ...

    def values(self, timeout_s: float, /) -> list[bytes | None]:
        """Return the predictions that have arrived, waiting at most so long for the first."""
        ...


class Due(NamedTuple):
    """A record that is to be sent at its time (us from the start)."""

    offset_us: int
    topic: str
    key: bytes
    value: bytes


@dataclass(slots=True)
class Heard:
    """A stretch as it was seen from outside.

    Attributes:
        told_us: when feedback on each query was meant to be written.
        taken: `(read_us, value)` of each answer.
        late_us: how late the latest record was sent.
    """

    told_us: dict[str, int] = field(default_factory=dict)
    taken: list[tuple[int, bytes]] = field(default_factory=list)
    late_us: int = 0


class Teller:
    """Sends records when they are due (`load.harness.openloop`), and keeps what is answered."""

    def __init__(self, carrier: Carrier, due: Sequence[Due], heard: Heard, now_us: Callable[[], int]) -> None:
        self._carrier, self._due, self._heard, self._now_us = carrier, due, heard, now_us

    def send(self, index: int, intended_us: int) -> None:
        """Send record number `index`."""
        self._carrier.produce(*self._due[index][1:])
        self._heard.late_us = max(self._heard.late_us, self._now_us() - intended_us)

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s` for the first of it."""
        arrived = self._carrier.values(wait_s)
        now_us = self._now_us()
        self._heard.taken += [(now_us, value or b"") for value in arrived]


def listen(
    carrier: Carrier, workload: Workload, offsets_us: Sequence[int], seconds: float, now_us: Callable[[], int]
) -> Heard:
    """Ask at these times, tell the truth about what is asked in the first `seconds`, and return all that is heard.

    Args:
        carrier: takes records and has answers.
        workload: makes queries, and knows their labels.
        offsets_us: when to ask, from the start.
        seconds: for which feedback is written.
        now_us: the clock.
    """
    codec, heard, due = Codec(), Heard(), list[Due]()
    start_us = now_us() + _LEAD_US + 2 * len(offsets_us) * _MAKING_US
    for index, offset_us in enumerate(offsets_us):
        query, label = workload(index, start_us + offset_us)
        due.append(Due(offset_us, names.QUERIES, key_of(query), codec.encode(query)))
        if offset_us < seconds * 1e6:
            told_us = heard.told_us[query.query_id] = start_us + offset_us + _DELAY_US
            feedback = codec.encode(Feedback(query.query_id, label=label, sent_us=told_us))
            due.append(Due(offset_us + _DELAY_US, names.FEEDBACK, key_of(query), feedback))
    due.sort(key=lambda each: each.offset_us)
    teller = Teller(carrier, due, heard, now_us)
    pace(teller, (each.offset_us for each in due), start_us, now_us, lambda: False)
    end_us = now_us() + int(_DRAIN_S * 1e6)
    while len(heard.taken) < len(offsets_us) and now_us() < end_us:
        teller.turn(IDLE_S)
    return heard


def ages_us(told_us: Mapping[str, int], folded: Iterable[str], seen: Iterable[tuple[int, int]]) -> list[float]:
    """Return for each piece of feedback how long it took to decide (us); infinite where it was never seen to.

    Args:
        told_us: when feedback was written, by query.
        folded: the queries whose observations were folded, in the order of the log, from its beginning.
        seen: `(read_us, version)` of answers as they were read: so many observations had their states folded.
    """
    order = list(folded)
    decided_us: dict[str, int] = {}
    known = 0
    for read_us, version in seen:
        for query_id in order[known:version]:
            decided_us[query_id] = read_us
        known = max(known, version)
    return [decided_us.get(query_id, math.inf) - at_us for query_id, at_us in told_us.items()]


async def run(stage: Stage) -> Result:
    """Send each rate in turn, over several rounds; then read the log once."""
    data = digits()
    packages = package_all(linear_models(data), data.test_x, stage.folder, LINEAR_RUNTIME)
    deployment = _deployment(packages)
    rounds = SHORT_ROUNDS if stage.short else ROUNDS
    heard: list[tuple[int, Heard]] = []
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        warm = Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed)
        await driver.at(_WARM_UP_RATE, warm, _WARM_UP_S)
        for number, rate in itertools.product(range(1, rounds + 1), RATES):
            heard.append((rate, await _stretch(driver, data, rate, number, stage.seconds)))
        last = await _stretch(driver, data, RATES[0], 0, seconds=0.0)
        folded = await asyncio.to_thread(_folded, stage, deployment.prefix)
    seen = versions(itertools.chain.from_iterable(its.taken for _, its in (*heard, (0, last))))
    found = [(rate, measured(its, folded, seen)) for rate, its in heard]
    return Result(
        NAME,
        figures=figures([{"rate_per_s": rate, **its.row()} for rate, its in found]),
        parameters={"form": stage.form, "rounds": rounds, "seconds": stage.seconds, "seed": stage.seed},
        series={
            "rounds": [{"rate_per_s": rate, **its.row()} for rate, its in found],
            "ages": shares([(rate, its.ages_us) for rate, its in found]),
        },
        notes=(
            "Times are medians of the rounds, with the least and the most; counts are of all rounds.",
            "Feedback on a query that no model has answered teaches nothing, so it is no feedback here.",
        ),
    )


def _deployment(packages: Mapping[str, Path]) -> Deployment:
    """Return the whole loop in one process; its window is longer than the run, so feedback alone makes observations."""
    settings = {
        "selection": {"inline": sorted(packages)},
        "joiner": {"window_s": _WINDOW_S},
        "log_level": "warning",
    }
    application = Application(_APPLICATION, tuple(packages), "exp3", window_s=_WINDOW_S)
    return Deployment(topics.new_prefix(NAME), (application,), packages, settings=settings, processes="shared")


async def _stretch(driver: Driver, data: Digits, rate: int, number: int, seconds: float) -> Heard:
    """Return what is heard of one stretch, once the system has worked off what was before."""
    await asyncio.to_thread(rest, lambda: driver.system.pids, cores=_QUIET_CORES)
    return await asyncio.to_thread(_listened, driver, data, rate, number, seconds)


def _listened(driver: Driver, data: Digits, rate: int, number: int, seconds: float) -> Heard:
    stage = driver.stage
    rows = Rows(_APPLICATION, data.inputs, data.labels, seed=(stage.seed * 100 + number) * 10_000 + rate)
    asked_us = list(arrivals.until(arrivals.poisson(rate, rows.seed), seconds + _TAIL_S))
    wire = Wire(stage.bootstrap, driver.prefix, stage.properties, linger_ms(rate))
    wire.follow((names.PREDICTIONS,))
    with frozen(), closing(wire):
        return listen(wire, rows, asked_us, seconds, SystemClock().now_us)


def _folded(stage: Stage, prefix: str) -> dict[str, int]:
    """Return the queries whose observations the learner has folded, as `order` does."""
    with closing(Wire(stage.bootstrap, prefix, stage.properties)) as wire:
        wire.follow((names.OBSERVATIONS,), from_start=True)
        return order(wire.written())


def order(log: Iterable[Arrival]) -> dict[str, int]:
    """Return the queries of a log of observations in its order, of copies the first, and when each was written (us).

    Raises:
        ValueError: they are not in one partition, so there is no one order.
    """
    codec, found, partitions = Codec(), dict[str, int](), set[int]()
    for arrival in log:
        partitions.add(arrival.partition)
        for seen in codec.decode(Observations, arrival.value).items:
            found.setdefault(seen.query_id, arrival.timestamp_us)
    if len(partitions) > 1:
        raise ValueError(f"one state is taught from {len(partitions)} partitions")
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcome of one stretch.

    Attributes:
        ages_us: how long each piece of feedback took to decide; infinite where it was not seen to.
        logged_us: how long its observation took to be written, to the millisecond; infinite where it was not.
        defaults: answers that no model has given; feedback on them teaches nothing, and is none of the above.
        late_us: how late the sender was at worst.
    """

    ages_us: NDArray[np.float64]
    logged_us: NDArray[np.float64]
    defaults: int
    late_us: int

    def row(self) -> dict[str, float]:
        """Return plain numbers."""
        p50_ms, p99_ms = _percentiles_ms(self.ages_us, 50, 99)
        return {
            "p50_ms": p50_ms,
            "p99_ms": p99_ms,
            "logged_p50_ms": _percentiles_ms(self.logged_us, 50)[0],
            "unseen": int(np.isinf(self.ages_us).sum()),
            "defaults": self.defaults,
            "sender_late_ms": self.late_us / 1e3,
        }


def versions(taken: Iterable[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Return of answers, `(read_us, value)` as they were read, how many observations their states had folded."""
    codec = Codec()
    decided = ((read_us, codec.decode(Prediction, value).decision) for read_us, value in taken)
    return [(read_us, decision.state_version) for read_us, decision in decided if decision is not None]


def measured(heard: Heard, folded: Mapping[str, int], seen: Iterable[tuple[int, int]]) -> Measured:
    """Return what a stretch comes to.

    Args:
        heard: the stretch.
        folded: all observations of the log, as `order` has them.
        seen: `versions` of all answers, those of later stretches too: what was late is old, and not lost.
    """
    codec = Codec()
    answers = [codec.decode(Prediction, value) for _, value in heard.taken]
    defaults = {answer.query_id for answer in answers if answer.status is Status.DEFAULT}
    told_us = {name: us for name, us in heard.told_us.items() if name in folded or name not in defaults}
    logged_us = [folded.get(name, math.inf) - us for name, us in told_us.items()]
    ages = ages_us(told_us, folded, seen)
    return Measured(np.array(ages), np.array(logged_us), len(defaults), heard.late_us)


def _percentiles_ms(values_us: NDArray[np.float64], *points: float) -> list[float]:
    """Return percentiles, each of them a time that was seen; infinite where there is none."""
    if not len(values_us):
        return [math.inf] * len(points)
    return [float(us) / 1e3 for us in np.percentile(values_us, points, method="inverted_cdf")]


def shares(ages: Sequence[tuple[int, NDArray[np.float64]]]) -> list[dict[str, float]]:
    """Return for each rate by which age (ms) each percent of all its rounds' feedback decides, as far as it does."""
    rows = []
    for rate in RATES:
        mine = np.concatenate([us for its, us in ages if its == rate])
        points = _percentiles_ms(mine, *range(1, 100))
        rows += [
            {"rate_per_s": rate, "share": percent / 100, "age_ms": age}
            for percent, age in enumerate(points, start=1)
            if math.isfinite(age)
        ]
    return rows


_TIMES = ("p50_ms", "p99_ms", "logged_p50_ms")


def figures(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return medians of times over the rounds, sums of counts; what was not seen at the quantile has no figure."""
    found: dict[str, float] = {}
    for rate in RATES:
        mine = [row for row in rows if row["rate_per_s"] == rate]
        found |= {f"at_{rate}_{name}": median(row[name] for row in mine) for name in _TIMES}
        found |= {f"at_{rate}_{name}": float(sum(row[name] for row in mine)) for name in ("unseen", "defaults")}
        found[f"at_{rate}_sender_late_ms"] = max(row["sender_late_ms"] for row in mine)
    return {name: value for name, value in found.items() if math.isfinite(value)}
